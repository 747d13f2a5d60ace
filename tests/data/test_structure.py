"""Nested arrays as flat tuples and structures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedopt.data.structure import as_array, flatten
from fedopt.errors import DataError

ARRAYS = st.integers(0, 9).map(lambda value: np.full(2, value))
TREES = st.recursive(
    ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        assert np.array_equal(found, expected)


@given(TREES)
def test_unflatten_restores_nested_arrays(tree: Any) -> None:
    arrays, structure = flatten(tree)
    assert_same(structure.unflatten(arrays), tree)


def test_order_of_dict_entries_does_not_matter() -> None:
    a, b = np.zeros(1), np.ones(1)
    first, second = flatten({"a": a, "b": b}), flatten({"b": b, "a": a})
    assert first[1] == second[1]
    assert [array[0] for array in first[0]] == [array[0] for array in second[0]] == [0, 1]


def test_tensors_and_lists_become_arrays() -> None:
    weights = torch.tensor([1.5, 2.0], requires_grad=True)
    for value in (weights, weights.bfloat16(), weights.half(), [1.5, 2.0]):
        assert as_array(value).tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    "value", [["a", "b"], [[1, 2], [3]], np.array([None, 1]), 3, np.array("x"), np.array([{}])]
)
def test_values_that_are_not_numeric_arrays_are_refused_with_their_name(value: Any) -> None:
    with pytest.raises(DataError) as error:
        flatten({"text": value})
    assert error.value.column == "text"
    assert "\n" not in str(error.value)


def test_integer_that_int64_cannot_hold_is_rejected() -> None:
    """Torch would make it negative."""
    assert as_array(np.array([2**63 - 1], np.uint64)).tolist() == [2**63 - 1]
    with pytest.raises(DataError) as caught:
        as_array(np.array([2**63], np.uint64), "targets")
    assert caught.value.column == "targets"
