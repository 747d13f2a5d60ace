"""Declared capabilities of models, and layers that update themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest
import torch
from torch import nn

from fedopt.models.capabilities import declares, self_updating_layers
from fedopt.models.dense import Dense
from fedopt.models.emnist import Autoencoder, CharacterCNN
from fedopt.models.flat import Flat, updating_in_backward
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import NextCharacter, NextWord

RATE = 0.03125


def test_layer_with_computed_weight_does_not_update_itself() -> None:
    network = CharacterCNN()
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(network.dense1)
    with self_updating(network, RATE):
        assert network.dense1.rate is None and network.dense2.rate == RATE


def self_updating(module: nn.Module, rate: float | None) -> AbstractContextManager[None]:
    """Let the layers of a model update themselves where that is exact; no layer if there is no rate."""
    return updating_in_backward(self_updating_layers(module) if rate else [], rate or 0.0)


def _steps(module: nn.Module, x: torch.Tensor, rate: float | None) -> torch.Tensor:
    """Return the parameters after two steps of SGD; with a rate, layers update themselves."""
    flat = Flat(module)
    flat.bind(flat.read())
    with self_updating(module, rate):
        for batch in (x, x + 1):
            found = torch.autograd.grad(module(batch).square().sum(), flat.parameters, allow_unused=True)
            with torch.no_grad():
                for p, g in zip(flat.parameters, found, strict=True):
                    if g is not None:
                        p.sub_(g, alpha=RATE)
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = Dense(4, 4), Dense(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        out: torch.Tensor = self.last(x)
        return out


class _Adversarial(nn.Module):
    """Adversarial training: the forward pass runs a backward pass to change the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Recurrent()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            x = x.clone().requires_grad_()
            x = (x + 0.1 * torch.autograd.grad(self.inner(x).sum(), x)[0].sign()).detach()
        out: torch.Tensor = self.inner(x)
        return out


class _Tied(nn.Module):
    """Two layers share a weight, which is also used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Dense(4, 4), Dense(4, 4)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.two(torch.tanh(self.one(x @ self.one.weight)))) @ self.two.weight


def _frozen(first: str) -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), Dense(4, 4), nn.Tanh(), Dense(4, 2))
    module.get_parameter(first).requires_grad_(False)
    return module


def _normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(Dense(4, 3)), nn.Tanh(), Dense(3, 2))


def _clipped() -> nn.Module:
    module = nn.Sequential(Dense(4, 3), Dense(3, 2))
    module[0].weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return module


def _in_two_places() -> nn.Module:
    layer = Dense(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, Dense(4, 2))


def _one_without_bias() -> nn.Module:
    return nn.Sequential(Dense(4, 3, bias=False), nn.Tanh(), Dense(3, 2))


class _Branches(nn.Module):
    """An unused layer, an unused result, and inputs with several dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = Dense(4, 3), Dense(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.used(x)
        out: torch.Tensor = self.used(x.view(2, 3, 4)).transpose(0, 2)
        return out


@pytest.mark.parametrize(
    "build",
    [
        _Recurrent,
        _Adversarial,
        _Tied,
        _Branches,
        _normed,
        _clipped,
        _in_two_places,
        _one_without_bias,
        partial(_frozen, "1.weight"),
        partial(_frozen, "1.bias"),
        partial(_frozen, "3.weight"),
    ],
)
def test_models_without_declaration_take_the_same_steps(
    build: Callable[[], nn.Module],
) -> None:
    ends = []
    for rate in (None, RATE):
        torch.manual_seed(3)
        ends.append(_steps(build(), torch.rand(6, 4), rate))
    assert torch.allclose(ends[0], ends[1], rtol=1e-5, atol=1e-6)


def test_dense_layers_of_the_paper_networks_update_themselves() -> None:
    networks: dict[Callable[[], nn.Module], int] = {
        CharacterCNN: 2,
        Autoencoder: 8,
        NextCharacter: 1,
        NextWord: 2,
    }
    for build, count in networks.items():
        module = build()
        flat = Flat(module)
        with self_updating(flat.module, 0.5):
            assert [layer.rate for layer in module.modules() if isinstance(layer, Dense)] == [0.5] * count
    tags = TagRegression()
    with self_updating(tags, 0.5):
        assert tags.rate == 0.5


class _Subclass(CharacterCNN):
    """A subclass, which can change the forward pass."""


def _changed(change: str) -> nn.Module:
    module = _Subclass() if change == "a subclass" else CharacterCNN()
    if change == "frozen":
        module.dense1.weight.requires_grad_(False)
    elif change == "watched":
        module.dense2.bias.register_hook(lambda g: g)
    elif change == "normed":
        nn.utils.parametrizations.weight_norm(module.dense1)
    return module


@pytest.mark.parametrize(
    ("change", "moving"), [("none", 2), ("normed", 1), ("frozen", 0), ("watched", 0), ("a subclass", 0)]
)
def test_changed_networks_do_not_update_themselves(change: str, moving: int) -> None:
    module = _changed(change)
    flat = Flat(module)
    with self_updating(flat.module, 0.5):
        rates = [layer.rate for layer in module.modules() if isinstance(layer, Dense)]
    assert rates.count(0.5) == moving


def test_rates_are_removed_at_the_end() -> None:
    flat = Flat(Autoencoder())
    layers = [layer for layer in flat.module.modules() if isinstance(layer, Dense)]
    with pytest.raises(ZeroDivisionError), self_updating(flat.module, 0.5):
        assert {layer.rate for layer in layers} == {0.5}
        raise ZeroDivisionError
    assert {layer.rate for layer in layers} == {None}


def test_declarations_do_not_apply_to_subclasses() -> None:
    assert declares(CharacterCNN(), "each_layer_once")
    assert not declares(_Subclass(), "each_layer_once")
