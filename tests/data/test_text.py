"""Token ids of known sentences, worked out by hand, and against plain loops; losses and metrics of text."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.data import text
from fedopt.data.store.columns import Ragged, ragged, text_rows
from fedopt.errors import UserError
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP
from fedopt.tasks.text_metrics import (
    count_target_tokens,
    recall_at_5,
    shift_tokens,
    tag_loss,
    token_accuracy,
    token_loss,
)

steady = settings(deadline=None, derandomize=True, max_examples=60)

# Counted off in the authors' list: d h l p t x @ D H L P T X space $ ( , 0 4 8 c g k o s w C G K O S W ...
SPEECHES = {
    b"To be, or not": [12, 24, 14, 42, 65, 17, 14, 24, 46, 14, 45, 24, 5],
    b"Who's there?\n": [32, 2, 24, 36, 25, 14, 5, 2, 65, 46, 65, 41, 63],
    b'"A & Z" [1599]\r': [56, 71, 14, 57, 14, 55, 56, 14, 33, 83, 84, 85, 85, 78, 86],
    b"d\r": [1, 86],
    b"1 + 1": [83, 14, 87, 14, 83],  # + is not among the 86
    "à".encode(): [87, 87],  # two bytes, neither among them
    b"": [],
}


# -- characters


def test_the_alphabet_has_86_characters_and_four_tokens_around_them() -> None:
    assert len(set(text.ALPHABET)) == len(text.ALPHABET) == 86
    tokens = text.CHARACTERS
    assert (text.PAD, tokens.oov, tokens.bos, tokens.eos, tokens.rows) == (0, 87, 88, 89, 90)


@pytest.mark.parametrize("speech", SPEECHES)
def test_a_speech_has_the_ids_counted_by_hand(speech: bytes) -> None:
    ids = [88, *SPEECHES[speech], 89]
    assert text.encode_characters(text_rows([speech])).tolist() == [ids + [0] * (81 - len(ids))]


@pytest.mark.parametrize(
    ("length", "rows", "end"), [(0, 1, 1), (78, 1, 79), (79, 1, 80), (80, 2, 0), (160, 2, 80), (161, 3, 0)]
)
def test_a_speech_is_cut_where_81_tokens_are_full(length: int, rows: int, end: int) -> None:
    """Beginning and end count too: 79 characters fill a row, with 80 the end has a row to itself."""
    made = text.encode_characters(text_rows([b"a" * length]))
    assert made.shape == (rows, 81)
    assert text.count_character_rows(np.array([length])).tolist() == [rows]
    assert made[0, 0] == 88 and made[-1, end] == 89
    assert not made[-1, end + 1 :].any()
    assert (made == 64).sum() == length


def slow_characters(speeches: list[bytes]) -> list[list[int]]:
    rows = []
    for speech in speeches:
        ids = [88] + [text.ALPHABET.index(b) + 1 if b in text.ALPHABET else 87 for b in speech] + [89]
        ids += [0] * (-len(ids) % 81)
        rows += [ids[at : at + 81] for at in range(0, len(ids), 81)]
    return rows


@steady
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=6))
def test_speeches_encoded_together_are_those_encoded_one_by_one(speeches: list[bytes]) -> None:
    column = text_rows(speeches)
    made = text.encode_characters(column)
    assert made.tolist() == slow_characters(speeches)
    assert text.count_character_rows(np.diff(column.offsets)).sum() == len(made)


# -- words


def row(*ids: int) -> list[int]:
    return [*ids] + [0] * (21 - len(ids))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([5, 10_001, 7], row(10_002, 5, 10_001, 7, 10_003)),
        ([], row(10_002, 10_003)),
        ([10_000], row(10_002, 10_000, 10_003)),
        ([*range(1, 20)], row(10_002, *range(1, 20), 10_003)),
        ([*range(1, 21)], row(10_002, *range(1, 21))),  # twenty words leave no room for the end
        ([*range(1, 40)], row(10_002, *range(1, 21))),
    ],
    ids=["short", "empty", "one", "19 words", "20 words", "39 words"],
)
def test_a_sentence_has_its_first_20_words_and_an_end_if_it_is_shorter(
    words: list[int], expected: list[int]
) -> None:
    assert text.encode_sentences(ragged([words], np.uint16)).tolist() == [expected]


WORD_ROWS = st.lists(st.lists(st.integers(1, 10_001), max_size=30), min_size=1, max_size=6)


@steady
@given(WORD_ROWS)
def test_sentences_encoded_together_are_those_encoded_one_by_one(rows: list[list[int]]) -> None:
    expected = [row(10_002, *words[:20], *([10_003] if len(words) < 20 else [])) for words in rows]
    assert text.encode_sentences(ragged(rows, np.uint16)).tolist() == expected


def test_inputs_are_the_tokens_before_the_targets() -> None:
    rows = torch.tensor([[88, 5, 6, 89, 0]], dtype=torch.uint8)
    inputs, targets = shift_tokens((rows,), None)
    assert inputs.tolist() == [[88, 5, 6, 89]]
    assert targets.tolist() == [[5, 6, 89, 0]]
    assert count_target_tokens((rows,)) == 3


# -- bags of words


def test_a_bag_counts_the_words_of_sentence_and_title() -> None:
    tokens, title = ragged([[3, 10_001, 3], [9]], np.uint16), ragged([[4], []], np.uint16)
    assert text.encode_bags(tokens, title, "as_run").tolist() == [[3, 10_001, 3, 4], [9, 0, 0, 0]]
    assert text.encode_bags(tokens, title, "as_printed").tolist() == [[3, 3, 4], [9, 0, 0]]


@steady
@given(st.lists(st.tuples(*[st.lists(st.integers(1, 10_001), max_size=8)] * 2), min_size=1, max_size=5))
def test_bags_made_together_are_those_made_one_by_one(pairs: list[tuple[list[int], list[int]]]) -> None:
    tokens, title = (ragged([pair[at] for pair in pairs], np.uint16) for at in (0, 1))
    for bag, most in (("as_run", 10_001), ("as_printed", 10_000)):
        kept = [[word for word in one + other if word <= most] for one, other in pairs]
        width = max(1, *map(len, kept)) if len(kept) > 1 else max(1, len(kept[0]))
        assert text.encode_bags(tokens, title, bag).tolist() == [
            words + [0] * (width - len(words)) for words in kept
        ]


def test_an_unknown_bag_is_refused() -> None:
    empty = Ragged(np.zeros(0, np.uint16), np.zeros(1, np.int64))
    with pytest.raises(UserError, match="unknown data.bag 'printed'.*allowed: as_run, as_printed"):
        text.encode_bags(empty, empty, "printed")


def test_tags_become_columns_of_ones() -> None:
    tags = text.encode_tags(ragged([[0, 499], [], [7]], np.uint16))
    assert tags.tolist() == [[1, 500], [0, 0], [8, 0]]
    _, hot = SO_LR.prepare((torch.zeros(3, 1), torch.tensor(tags)), None)
    assert hot.shape == (3, 500)
    assert [line.nonzero().flatten().tolist() for line in hot] == [[0, 499], [], [7]]
    assert hot.sum() == 3 and hot.dtype == torch.float32


def test_the_first_rows_of_a_column() -> None:
    column = ragged([[1, 2], [3], [4, 5, 6]], np.uint16)
    assert [part.tolist() for part in text.first_rows(column, 2)] == [[1, 2, 3], [0, 2, 3]]
    assert text.first_rows(column, 9).values.tolist() == [1, 2, 3, 4, 5, 6]


# -- losses and metrics


def certain(predictions: list[list[int]], vocabulary: int) -> torch.Tensor:
    """Outputs whose likeliest token is the given one, by a logarithm of 3."""
    hot = torch.nn.functional.one_hot(torch.tensor(predictions), vocabulary)
    return log(3) * hot.float()


def test_the_loss_counts_padding_unless_it_is_masked() -> None:
    """Of 3 tokens the likeliest has 3/5, the others 1/5 each."""
    outputs, targets = certain([[1, 1], [2, 2]], 3), torch.tensor([[1, 0], [1, 2]])
    likely, unlikely = -log(3 / 5), -log(1 / 5)
    expected = [(likely + unlikely) / 2, (unlikely + likely) / 2]
    torch.testing.assert_close(token_loss(outputs, targets), torch.tensor(expected))
    masked = token_loss(outputs, targets, masked=True)
    torch.testing.assert_close(masked, torch.tensor((likely + unlikely + likely) / 3))


def test_the_three_next_word_accuracies_by_hand() -> None:
    """A word right, a word wrong, oov right, eos right, pad: the paper's counts the two words alone."""
    targets = torch.tensor([[5, 6, 10_001, 10_003, 0]])
    outputs = certain([[5, 7, 10_001, 10_003, 0]], 10_004)
    shares = {}
    for name, metric in SO_NWP.metrics.items():
        above, below = metric(outputs, targets)
        assert above.shape == below.shape == (1,)
        shares[name] = (int(above.sum()), int(below.sum()))
    assert shares == {"accuracy": (1, 2), "accuracy_no_oov": (2, 3), "accuracy_with_oov": (3, 4)}
    assert next(iter(shares)) == SO_NWP.metric == "accuracy"


def test_accuracy_is_of_tokens_not_of_rows() -> None:
    """One row with three tokens of which all are right, one with one that is wrong: 3/4."""
    targets = torch.tensor([[1, 2, 3, 0], [1, 0, 0, 0]])
    above, below = token_accuracy(certain([[1, 2, 3, 3], [2, 0, 0, 0]], 5), targets)
    assert (above.tolist(), below.tolist()) == ([3, 0], [3, 1])


def test_recall_at_5_is_the_share_of_all_true_tags_among_the_first_five() -> None:
    outputs = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3], [1.0, 2, 3, 4, 5, 6, 7]])
    targets = torch.tensor([[1.0, 0, 0, 0, 1, 1, 0], [1.0, 1, 0, 0, 0, 0, 0]])
    found, true = recall_at_5(outputs, targets)
    assert (found.tolist(), true.tolist()) == ([2, 0], [3, 2])  # together 2/5, not the mean of 2/3 and 0


def test_the_tag_loss_is_a_mean_over_tags_and_a_sum_over_the_batch() -> None:
    """Logits of log 3 are probabilities of 3/4."""
    outputs = torch.full((2, 4), log(3))
    targets = torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 1, 1]])
    expected = [(-log(3 / 4) - 3 * log(1 / 4)) / 4, -log(3 / 4)]
    torch.testing.assert_close(tag_loss(outputs, targets), torch.tensor(expected))
    assert SO_LR.reduction == "sum"
