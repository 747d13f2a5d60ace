"""User-defined models: buffers, frozen and tied parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from own_clients import (
    CLASSES,
    FEATURES,
    assert_refused,
    examples,
    linear,
    make_task,
    train,
)
from torch import Tensor, nn

import fedopt
from fedopt.errors import ConfigError, ModelError


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))


def test_batch_norm_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'1'.*running statistics.*buffers='freeze'"):
        train(make_task(normalised))


def test_frozen_batch_norm_uses_its_initial_statistics() -> None:
    """Then the layer is affine: training equals that of the same network with the layer written out."""
    model = normalised()
    model[1].running_mean.copy_(torch.linspace(-1, 1, 5))
    model[1].running_var.copy_(torch.linspace(0.5, 2, 5))

    class Affine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))

        def forward(self, h: Tensor) -> Tensor:
            mean, variance = torch.linspace(-1, 1, 5), torch.linspace(0.5, 2, 5)
            return (h - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias

    written_out = nn.Sequential(model[0], Affine(), model[2])
    frozen, by_hand = (
        train(make_task(model), rounds=3, buffers="freeze"),
        train(make_task(written_out), rounds=3),
    )
    torch.testing.assert_close(frozen.x, by_hand.x)
    assert not torch.equal(frozen.x[20 + 5 : 20 + 10], torch.ones(5))  # the layer's weight was trained


def test_frozen_statistics_do_not_change() -> None:
    built: list[nn.Module] = []

    def build() -> nn.Module:
        built.append(normalised())
        return built[-1]

    train(make_task(build), buffers="freeze")
    for model in built:
        statistics = dict(model.named_buffers())
        assert torch.equal(statistics["1.running_mean"], torch.zeros(5))
        assert torch.equal(statistics["1.running_var"], torch.ones(5))
        assert statistics["1.num_batches_tracked"].item() == 0


class Counting(nn.Module):
    """A module that counts its forward passes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        out: Tensor = self.inner(points)
        return out


class Replacing(Counting):
    """The same with a new tensor each time."""

    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + 1
        out: Tensor = self.inner(points)
        return out


@pytest.mark.parametrize("policy", ["refuse", "freeze"])
@pytest.mark.parametrize("model", [Counting, Replacing])
def test_module_that_writes_a_buffer_is_refused(model: type[nn.Module], policy: str) -> None:
    assert_refused(lambda: train(make_task(model), buffers=policy), ModelError, what="seen")


def test_constant_buffer_is_allowed() -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(FEATURES, CLASSES)
            self.register_buffer("scale", torch.full((FEATURES,), 2.0))

        def forward(self, points: Tensor) -> Tensor:
            return super().forward(points * self.scale)

    assert train(make_task(Scaled)).params == 15


def test_unknown_buffer_policy_is_refused() -> None:
    assert_refused(lambda: train(make_task(linear), buffers="frozen"), ConfigError, keys=("buffers",))


def test_frozen_parameters_do_not_change_and_are_not_in_the_vector() -> None:
    built: list[nn.Module] = []

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES))
        model[0].requires_grad_(False)
        built.append(model)
        return model

    task = make_task(build)
    built.clear()  # the definition of a task builds a model to choose the metric
    result = train(task, rounds=3)
    assert result.params == 5 * 3 + 3
    weights = [model[0].weight for model in built]
    assert len(weights) > 1 and all(torch.equal(weight, weights[0]) for weight in weights)


class Tied(nn.Module):
    """One matrix, used as it is and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(FEATURES, CLASSES, bias=False)
        self.up = nn.Linear(CLASSES, FEATURES, bias=False)
        self.again = nn.Linear(FEATURES, CLASSES, bias=False)
        self.again.weight = self.down.weight

    def forward(self, points: Tensor) -> Tensor:
        out: Tensor = self.again(self.up(self.down(points)))
        return out


def test_tied_parameters_stay_tied(tmp_path: Path) -> None:
    """The step of a tied matrix is that of the sum of the gradients of its places."""
    model, clients = Tied(), {"a": examples("a")}
    config = {"clients_per_round": 1, "client.batch_size": 12, "client.lr": 0.1}
    result = train(make_task(model, clients=clients), rounds=1, config=config, out=tmp_path / "run")
    assert result.params == 2 * FEATURES * CLASSES

    F.cross_entropy(model(torch.from_numpy(clients["a"][0])), torch.from_numpy(clients["a"][1])).backward()
    stepped = [p.detach() - 0.1 * p.grad for p in model.parameters()]
    torch.testing.assert_close(result.x, torch.cat([p.reshape(-1) for p in stepped]))

    loaded = fedopt.load(tmp_path / "run", Tied()).model
    assert loaded.again.weight is loaded.down.weight


def test_overlapping_parameters_are_refused() -> None:
    class Shared(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.again.weight = nn.Parameter(self.down.weight.data)

    with pytest.raises(ModelError, match="'down.weight'.*'again.weight'|'again.weight'.*'down.weight'"):
        train(make_task(Shared))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_parameters_of_another_precision_are_refused(dtype: torch.dtype) -> None:
    assert_refused(lambda: train(make_task(linear().to(dtype))), ModelError, what="weight")


def test_model_without_trainable_parameters_is_refused() -> None:
    assert_refused(lambda: train(make_task(linear().requires_grad_(False))), ModelError, what="model")
