"""States of algorithms."""

from __future__ import annotations

import torch

from fedopt.algorithms.state import all_finite


def test_finite_numbers_whose_sum_overflows_are_finite() -> None:
    assert all_finite(torch.full((10,), 3e38))
    assert not all_finite(torch.tensor([1.0, float("inf"), float("-inf")]))
    assert not all_finite(torch.tensor([float("nan"), 1.0]))
