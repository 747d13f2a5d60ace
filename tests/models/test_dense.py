"""Dense layers that update themselves in the backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedopt.models.dense import Dense


def test_dense_layer_takes_the_step_worked_by_hand() -> None:
    layer = Dense(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
        layer.bias.fill_(0.5)
    x = torch.tensor([[3.0, 1.0], [1.0, 1.0]], requires_grad=True)
    layer.rate = 0.25
    # outputs 1.5 and -0.5; the loss is half the sum of squares, so these are its gradients
    (inner,) = torch.autograd.grad(layer(x).square().sum() / 2, [x])
    assert torch.equal(inner, torch.tensor([[1.5, -3.0], [-0.5, 1.0]]))  # computed with the old weights
    assert torch.equal(layer.weight.detach(), torch.tensor([[1.0 - 0.25 * 4.0, -2.0 - 0.25 * 1.0]]))
    assert layer.bias.item() == 0.5 - 0.25 * 1.0


def test_dense_layer_without_rate_is_nn_linear() -> None:
    torch.manual_seed(0)
    layer, plain = Dense(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(layer.state_dict())
    x = torch.rand(4, 2, 5)
    assert torch.equal(layer(x), plain(x))
    layer.rate = 0.1
    with torch.no_grad():
        assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.weight, plain.weight), "evaluation changes nothing"


def test_dense_layer_that_is_used_twice_raises_an_error() -> None:
    layer = Dense(3, 3)
    layer.rate = 0.1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(layer(layer(torch.rand(2, 3))).sum(), [layer.weight], allow_unused=True)
