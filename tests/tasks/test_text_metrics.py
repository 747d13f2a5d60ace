"""Targets, losses and metrics of the text tasks, worked by hand."""

from __future__ import annotations

from math import log

import torch

from fedopt.tasks.stackoverflow import SO_LR, SO_NWP
from fedopt.tasks.text_metrics import (
    count_target_tokens,
    recall_at_5,
    shift_tokens,
    tag_loss,
    token_accuracy,
    token_loss,
)


def test_inputs_and_targets_are_shifted_by_one_token() -> None:
    rows = torch.tensor([[88, 5, 6, 89, 0]], dtype=torch.uint8)
    inputs, targets = shift_tokens((rows,), None)
    assert inputs.tolist() == [[88, 5, 6, 89]]
    assert targets.tolist() == [[5, 6, 89, 0]]
    assert count_target_tokens((rows,)) == 3


def test_tags_become_columns_of_ones() -> None:
    tags = torch.tensor([[1, 500], [0, 0], [8, 0]])  # numbered from 1, 0 is padding
    _, hot = SO_LR.prepare((torch.zeros(3, 1), tags), None)
    assert hot.shape == (3, 500)
    assert [line.nonzero().flatten().tolist() for line in hot] == [[0, 499], [], [7]]
    assert hot.sum() == 3 and hot.dtype == torch.float32


def outputs_for(predictions: list[list[int]], vocabulary: int) -> torch.Tensor:
    """Return outputs in which the given token has the logit log 3 and the others 0."""
    hot = torch.nn.functional.one_hot(torch.tensor(predictions), vocabulary)
    return log(3) * hot.float()


def test_loss_includes_padding_unless_masked() -> None:
    """Of 3 tokens the likeliest has 3/5, the others 1/5 each."""
    outputs, targets = outputs_for([[1, 1], [2, 2]], 3), torch.tensor([[1, 0], [1, 2]])
    likely, unlikely = -log(3 / 5), -log(1 / 5)
    expected = [(likely + unlikely) / 2, (unlikely + likely) / 2]
    torch.testing.assert_close(token_loss(outputs, targets), torch.tensor(expected))
    masked = token_loss(outputs, targets, masked=True)
    torch.testing.assert_close(masked, torch.tensor((likely + unlikely + likely) / 3))


def test_three_next_word_accuracies_worked_by_hand() -> None:
    """One word is right, one is wrong, oov and eos are right. The paper counts only the two words."""
    targets = torch.tensor([[5, 6, 10_001, 10_003, 0]])
    outputs = outputs_for([[5, 7, 10_001, 10_003, 0]], 10_004)
    shares = {}
    for name, metric in SO_NWP.metrics.items():
        above, below = metric(outputs, targets)
        assert above.shape == below.shape == (1,)
        shares[name] = (int(above.sum()), int(below.sum()))
    assert shares == {"accuracy": (1, 2), "accuracy_no_oov": (2, 3), "accuracy_with_oov": (3, 4)}
    assert next(iter(shares)) == SO_NWP.metric == "accuracy"


def test_accuracy_is_the_mean_over_tokens() -> None:
    """One row has three right tokens, another has one wrong token: 3/4."""
    targets = torch.tensor([[1, 2, 3, 0], [1, 0, 0, 0]])
    above, below = token_accuracy(outputs_for([[1, 2, 3, 3], [2, 0, 0, 0]], 5), targets)
    assert (above.tolist(), below.tolist()) == ([3, 0], [3, 1])


def test_recall_at_5_is_a_micro_average() -> None:
    outputs = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3], [1.0, 2, 3, 4, 5, 6, 7]])
    targets = torch.tensor([[1.0, 0, 0, 0, 1, 1, 0], [1.0, 1, 0, 0, 0, 0, 0]])
    found, true = recall_at_5(outputs, targets)
    assert (found.tolist(), true.tolist()) == ([2, 0], [3, 2])  # 2/5 in total, not the mean of 2/3 and 0


def test_tag_loss_is_a_mean_over_tags_and_a_sum_over_the_batch() -> None:
    """Logits of log 3 are probabilities of 3/4."""
    outputs = torch.full((2, 4), log(3))
    targets = torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 1, 1]])
    expected = [(-log(3 / 4) - 3 * log(1 / 4)) / 4, -log(3 / 4)]
    torch.testing.assert_close(tag_loss(outputs, targets), torch.tensor(expected))
    assert SO_LR.reduction == "sum"
