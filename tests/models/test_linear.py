"""Logistic regression on bags of words."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedopt.models.linear import TagRegression, _stable_order


def test_bias_and_rows_of_words_take_the_step_worked_by_hand() -> None:
    model = TagRegression(vocabulary=3, tags=1)
    with torch.no_grad():
        model.kernel.copy_(torch.tensor([[1.0], [2.0], [4.0]]))
        model.bias.fill_(0.5)
    model.rate = 0.25
    # texts: words 1, 1 and an unknown one, divided by 3; word 3 alone; none
    out = model(torch.tensor([[1, 1, 9], [3, 0, 0], [0, 0, 0]]))
    assert torch.allclose(out, torch.tensor([[2 / 3 + 0.5], [4.5], [0.5]]))
    gradients = torch.autograd.grad(
        (out * torch.tensor([[3.0], [2.0], [1.0]])).sum(), [model.kernel, model.bias], allow_unused=True
    )
    assert gradients == (None, None)
    assert model.bias.item() == 0.5 - 0.25 * 6
    expected = torch.tensor([[1.0 - 0.25 * 3 * 2 / 3], [2.0], [4.0 - 0.25 * 2]])
    assert torch.allclose(model.kernel.detach(), expected)


@pytest.mark.parametrize("limit", [3, 300, 70_000])  # numbers of 8, 16 and 32 bits
def test_equal_rows_keep_their_order(limit: int) -> None:
    numbers = torch.randint(limit, (500,)).repeat(2)
    assert torch.equal(_stable_order(numbers, limit), torch.sort(numbers, stable=True).indices)


def test_rows_on_another_device_stay_there() -> None:
    assert _stable_order(torch.empty(5, dtype=torch.int64, device="meta"), 10).device.type == "meta"


def test_tag_regression_with_basic_operations_equals_sums_of_rows() -> None:
    model = TagRegression(vocabulary=6, tags=4).double()
    words = torch.tensor([[1, 6, 6, 0], [7, 2, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]])  # 7 and 9 are unknown
    outputs = []
    for basic in (False, True):
        if basic:
            model.use_basic_operations()
        outputs.append(model(words))
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)


Array = NDArray[np.float64]


def weights_of(model: nn.Module) -> dict[str, Array]:
    return {name: p.detach().double().numpy() for name, p in model.named_parameters()}


def shaken(model: nn.Module) -> nn.Module:
    """Set random weights and biases."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p))
    return model


def whole_bag(words: list[int], vocabulary: int) -> Array:
    """Return the mean of one-hot vectors; words outside the vocabulary count in the length only."""
    hot = np.zeros((max(len(words), 1), vocabulary + 1))
    for at, word in enumerate(words):
        hot[at, word - 1] = 1
    return hot.mean(axis=0)[:vocabulary]


def test_tag_regression_multiplies_the_bag_of_words() -> None:
    model = shaken(TagRegression(vocabulary=6, tags=3)).double()
    texts = [[1, 6, 1], [7, 2, 7, 3], [7], [], [5, 4, 3, 2, 1]]  # 7 is outside the vocabulary
    rows = torch.tensor([words + [0] * (5 - len(words)) for words in texts])
    bags = np.stack([whole_bag(words, 6) for words in texts])
    assert bags.sum(axis=1) == pytest.approx([1, 1 / 2, 0, 0, 1])
    weights = weights_of(model)
    expected = bags @ weights["kernel"] + weights["bias"]
    out = model(rows)
    torch.testing.assert_close(out, torch.tensor(expected))
    kernel, bias = torch.autograd.grad(out.square().sum(), [model.kernel, model.bias])
    torch.testing.assert_close(kernel, torch.tensor(2 * bags.T @ expected))
    torch.testing.assert_close(bias, torch.tensor(2 * expected.sum(axis=0)))


def test_tag_regression_is_initialised_as_in_keras() -> None:
    model, bound = TagRegression(), sqrt(6 / 10_500)
    assert model.kernel.shape == (10_000, 500)
    assert 0.999 * bound < float(model.kernel.detach().abs().max()) <= bound
    assert not model.bias.any()
