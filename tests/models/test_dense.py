"""Dense layers that update themselves in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn

from fedopt.models.capabilities import self_updating_layers
from fedopt.models.dense import Dense, DenseStack
from fedopt.models.emnist import Autoencoder
from fedopt.models.flat import updating_in_backward

RATE = 0.03125


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


def test_stack_equals_its_layers_to_the_bit() -> None:
    ends = []
    for stacked in (True, False):
        torch.manual_seed(1)
        network, x = Autoencoder(), torch.rand(7, 784)
        with self_updating(network, RATE):
            assert network.layers.rate == RATE
            if not stacked:
                network.layers.rate = None
            for _ in range(3):
                loss = (network(x) - x).square().sum()
                torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        ends.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert torch.equal(ends[0], ends[1])


def test_stack_returns_the_gradient_of_its_input() -> None:
    torch.manual_seed(1)
    x = torch.rand(4, 3, requires_grad=True)
    gradients = []
    for rate in (None, RATE):
        torch.manual_seed(2)
        stack = DenseStack(nn.Sigmoid(), Dense(3, 2), nn.Sigmoid())
        stack.rate = rate
        before = x.detach().clone()
        gradients.append(torch.autograd.grad(stack(x).square().sum(), [x])[0])
        assert torch.equal(x, before)
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize(
    "change",
    ["forward", "before", "backward", "before backward", "everywhere", "another layer", "own forward"],
)
def test_stack_with_hooks_or_other_layers_runs_layer_by_layer(change: str) -> None:
    network = Autoencoder()
    layer, seen = network.layers[2], list[int]()

    def note(*_: object) -> None:
        seen.append(1)

    def noted(x: torch.Tensor) -> torch.Tensor:
        note()
        return Dense.forward(layer, x)

    watches: dict[str, Callable[[], object]] = {
        "forward": lambda: layer.register_forward_hook(note),
        "before": lambda: layer.register_forward_pre_hook(note),
        "backward": lambda: layer.register_full_backward_hook(note),
        "before backward": lambda: layer.register_full_backward_pre_hook(note),
        "everywhere": lambda: nn.modules.module.register_module_forward_hook(note),
        "another layer": lambda: network.layers.insert(1, nn.Tanh()),
        "own forward": lambda: setattr(layer, "forward", noted),
    }
    watch = watches[change]()
    try:
        with self_updating(network, RATE):
            assert network.layers.rate is None and network.layers[0].rate == RATE
            loss = network(torch.rand(2, 784, requires_grad=True)).sum()
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    finally:
        if change == "everywhere":
            watch.remove()  # type: ignore[attr-defined]
    assert bool(seen) == (change != "another layer")


def test_layer_that_occurs_twice_in_a_stack_raises_an_error() -> None:
    network, twice = Autoencoder(), Dense(784, 784)
    network.layers.extend([twice, nn.Sigmoid(), twice])
    with self_updating(network, RATE):
        assert network.layers.rate is None
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss = network(torch.rand(2, 784)).sum()
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)


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


def self_updating(module: nn.Module, rate: float | None) -> AbstractContextManager[None]:
    """Let the layers of a model update themselves where that is exact; no layer if there is no rate."""
    return updating_in_backward(self_updating_layers(module) if rate else [], rate or 0.0)


def test_dense_layer_that_is_used_twice_raises_an_error() -> None:
    layer = Dense(3, 3)
    layer.rate = 0.1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(layer(layer(torch.rand(2, 3))).sum(), [layer.weight], allow_unused=True)
