"""Token ids of sentences, worked by hand and compared with plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.data import text
from fedopt.data.store.columns import Ragged, ragged, text_rows
from fedopt.errors import UnknownName

repeatable = settings(deadline=None, derandomize=True, max_examples=60)

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


def test_alphabet_has_86_characters_and_four_special_tokens() -> None:
    assert len(set(text.ALPHABET)) == len(text.ALPHABET) == 86
    tokens = text.CHARACTERS
    assert (text.PAD, tokens.oov, tokens.bos, tokens.eos, tokens.rows) == (0, 87, 88, 89, 90)


@pytest.mark.parametrize("speech", SPEECHES)
def test_speech_has_the_ids_worked_by_hand(speech: bytes) -> None:
    ids = [88, *SPEECHES[speech], 89]
    assert text.encode_characters(text_rows([speech])).tolist() == [ids + [0] * (81 - len(ids))]


@pytest.mark.parametrize(
    ("length", "rows", "end"), [(0, 1, 1), (78, 1, 79), (79, 1, 80), (80, 2, 0), (160, 2, 80), (161, 3, 0)]
)
def test_speech_is_cut_into_rows_of_81_tokens(length: int, rows: int, end: int) -> None:
    """Beginning and end count too: 79 characters fill a row; with 80, the end token is alone in a row."""
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


@repeatable
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=6))
def test_speeches_are_encoded_as_by_a_plain_loop(speeches: list[bytes]) -> None:
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
        ([*range(1, 21)], row(10_002, *range(1, 21))),  # no end token after twenty words
        ([*range(1, 40)], row(10_002, *range(1, 21))),
    ],
    ids=["short", "empty", "one", "19 words", "20 words", "39 words"],
)
def test_sentence_has_its_first_20_words_and_an_end_if_shorter(words: list[int], expected: list[int]) -> None:
    assert text.encode_sentences(ragged([words], np.uint16)).tolist() == [expected]


WORD_ROWS = st.lists(st.lists(st.integers(1, 10_001), max_size=30), min_size=1, max_size=6)


@repeatable
@given(WORD_ROWS)
def test_sentences_are_encoded_as_by_a_plain_loop(rows: list[list[int]]) -> None:
    expected = [row(10_002, *words[:20], *([10_003] if len(words) < 20 else [])) for words in rows]
    assert text.encode_sentences(ragged(rows, np.uint16)).tolist() == expected


# -- bags of words


def test_bag_has_the_words_of_sentence_and_title() -> None:
    tokens, title = ragged([[3, 10_001, 3], [9]], np.uint16), ragged([[4], []], np.uint16)
    assert text.encode_bags(tokens, title, "as_run").tolist() == [[3, 10_001, 3, 4], [9, 0, 0, 0]]
    assert text.encode_bags(tokens, title, "as_printed").tolist() == [[3, 3, 4], [9, 0, 0]]


@repeatable
@given(st.lists(st.tuples(*[st.lists(st.integers(1, 10_001), max_size=8)] * 2), min_size=1, max_size=5))
def test_bags_are_encoded_as_by_a_plain_loop(pairs: list[tuple[list[int], list[int]]]) -> None:
    tokens, title = (ragged([pair[at] for pair in pairs], np.uint16) for at in (0, 1))
    for bag, most in (("as_run", 10_001), ("as_printed", 10_000)):
        kept = [[word for word in one + other if word <= most] for one, other in pairs]
        width = max(1, *map(len, kept)) if len(kept) > 1 else max(1, len(kept[0]))
        assert text.encode_bags(tokens, title, bag).tolist() == [
            words + [0] * (width - len(words)) for words in kept
        ]


def test_unknown_bag_is_rejected() -> None:
    empty = Ragged(np.zeros(0, np.uint16), np.zeros(1, np.int64))
    with pytest.raises(UnknownName) as caught:
        text.encode_bags(empty, empty, "printed")
    assert (caught.value.kind, caught.value.allowed) == ("data.bag", ("as_run", "as_printed"))


def test_tags_are_numbered_from_1_and_padded() -> None:
    assert text.encode_tags(ragged([[0, 499], [], [7]], np.uint16)).tolist() == [[1, 500], [0, 0], [8, 0]]


def test_first_rows_of_a_column() -> None:
    column = ragged([[1, 2], [3], [4, 5, 6]], np.uint16)
    assert [part.tolist() for part in text.first_rows(column, 2)] == [[1, 2, 3], [0, 2, 3]]
    assert text.first_rows(column, 9).values.tolist() == [1, 2, 3, 4, 5, 6]
