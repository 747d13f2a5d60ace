"""A module as one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import fedopt
from fedopt.errors import ModelError
from fedopt.models import Autoencoder, CharacterCNN, Flat
from fedopt.models.flat import aligned


@pytest.mark.parametrize("build", [CharacterCNN, Autoencoder], ids=["cnn", "autoencoder"])
def test_read_returns_the_bound_vector_to_the_bit(build: Callable[[], nn.Module]) -> None:
    flat = Flat(build())
    x = torch.randn(flat.d)
    flat.bind(x)
    assert torch.equal(flat.read(), x)
    assert flat.read().data_ptr() != x.data_ptr()  # a copy


def test_vector_holds_parameters_in_module_order() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    flat = Flat(model)
    flat.bind(torch.arange(1.0, 10.0))
    assert flat.names == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert model[0].weight.tolist() == [[1, 2], [3, 4]]
    assert model[0].bias.tolist() == [5, 6]
    assert model[2].weight.tolist() == [[7, 8]]
    assert model[2].bias.tolist() == [9]


def test_bound_parameters_are_views_of_the_vector() -> None:
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([1.0, 2.0])
    Flat(model).bind(x)
    x[1] = 5.0
    assert model(torch.tensor([[1.0, 1.0]])).item() == 6.0


def test_model_without_trainable_parameters_is_rejected() -> None:
    with pytest.raises(ModelError):
        Flat(nn.Tanh())


def test_only_unaligned_vectors_are_copied() -> None:
    memory = torch.arange(64.0)
    start = (-memory.data_ptr() // 4) % 16  # the first float on a 64-byte border
    there, off = memory[start : start + 16], memory[start + 1 : start + 17]
    assert aligned(there).data_ptr() == there.data_ptr()
    assert aligned(off).data_ptr() % 64 == 0
    assert torch.equal(aligned(off), off)


def hooked(register: str) -> nn.Module:
    module = nn.Linear(3, 2)
    getattr(module.weight, register)(lambda _: None)
    return module


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_instance_with_hooks_on_parameters_is_rejected(register: str) -> None:
    """A copy of the module would lose the hooks."""
    arrays = (np.zeros((4, 3), np.float32), np.zeros(4, np.int64))
    with pytest.raises(ModelError) as caught:
        fedopt.own_task(hooked(register), nn.functional.cross_entropy, {"a": arrays}, test=arrays)
    assert caught.value.what == "model"
    assert "pass a function that builds the model" in str(caught.value)
    fedopt.own_task(partial(hooked, register), nn.functional.cross_entropy, {"a": arrays}, test=arrays)


def test_post_accumulate_hook_is_rejected() -> None:
    """`torch.autograd.grad` never calls such hooks."""
    with pytest.raises(ModelError) as caught:
        Flat(hooked("register_post_accumulate_grad_hook"))
    assert caught.value.what == "weight"
    Flat(hooked("register_hook"))
