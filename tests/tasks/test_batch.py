"""Nested batches, and how they are passed to a model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedopt.errors import ModelError
from fedopt.tasks.batch import call_model, count_examples, map_tensors

A, B = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])


class Add(nn.Module):
    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        return first if second is None else first - second


def test_inputs_are_passed_by_position_or_by_name() -> None:
    assert torch.equal(call_model(Add(), A), A)
    assert torch.equal(call_model(Add(), (A, B)), A - B)
    assert torch.equal(call_model(Add(), {"second": A, "first": B}), B - A)


def test_single_dict_entry_is_passed_by_name_if_the_model_has_it() -> None:
    class Named(nn.Module):
        def forward(self, other: Tensor = B, x: Tensor = A) -> Tensor:
            return x - other

    assert torch.equal(call_model(Named(), {"x": B}), B - B)
    assert torch.equal(call_model(nn.Identity(), {"pixels": A}), A)


def test_wrong_arguments_are_refused() -> None:
    for inputs in ({"first": A, "third": B}, (A, B, A)):
        with pytest.raises(ModelError) as error:
            call_model(Add(), inputs)
        assert error.value.what == "model"


def test_type_error_inside_the_model_is_not_replaced() -> None:
    class Broken(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        call_model(Broken(), (A, B))


def test_count_and_map_nested_tensors() -> None:
    nested = {"a": (A, B), "b": {"c": B}}
    assert count_examples(nested) == 2
    doubled = map_tensors(lambda part: 2 * part, nested)
    assert torch.equal(doubled["a"][1], 2 * B) and torch.equal(doubled["b"]["c"], 2 * B)
    assert isinstance(doubled["a"], tuple)
