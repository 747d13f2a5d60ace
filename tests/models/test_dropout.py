"""Dropout from random bytes."""

from __future__ import annotations

import pytest
import torch

from fedopt.models.dropout import Dropout


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_dropout_keeps_the_expected_share_and_scales_it(rate: float) -> None:
    torch.manual_seed(0)
    n = 999_999  # not a multiple of eight
    out = Dropout(rate)(torch.ones(n))
    kept = out[out != 0]
    assert torch.equal(kept, torch.full_like(kept, 1 / (1 - rate)))
    spread = (rate * (1 - rate) / n) ** 0.5
    assert abs(len(kept) / n - (1 - rate)) < 4 * spread
    # neighbours are independent
    both = (out[1:] != 0) & (out[:-1] != 0)
    assert both.double().mean().item() == pytest.approx((1 - rate) ** 2, abs=4e-3)


def test_dropout_uses_the_default_generator_and_only_in_training() -> None:
    layer, x = Dropout(0.5), torch.rand(7, 5)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(layer(x))
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("rate", [1 / 3, 1.0])
def test_dropout_rejects_rates_that_are_no_multiple_of_1_256(rate: float) -> None:
    with pytest.raises(ValueError, match="multiple of 1/256"):
        Dropout(rate)
