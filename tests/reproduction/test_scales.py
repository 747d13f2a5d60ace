"""Sentences that describe what a scale reduces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedopt.reproduction.scales import PAPER, SMALL, SMOKE, ReproductionScale


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [
        (SMALL, "100 rounds instead of 1,500 to 4,000."),
        (
            SMALL,
            "Tasks with long steps have fewer rounds: 30 for EMNIST CR, 30 for Shakespeare",
        ),
        (SMALL, "10 clients per round. The paper has 50 for SO NWP."),
        (SMALL, "3 x 3 rates around the paper's best rates"),
        (SMALL, "decay every 10 rounds instead of 500, which gives the paper's 3 levels"),
        (SMALL, "on 1,000 (CIFAR-10), 1,000 (CIFAR-100), 2,000 (other tasks) test examples"),
        (SMALL, "first 340 writers"),
        (SMOKE, "Means over the last 100 rounds are means over all rounds."),
        (PAPER, "every 50 rounds and every 10 of the last 100; the paper's code does it every round"),
        (replace(SMALL, decay_rounds=20), "every 20 rounds"),
        (replace(SMALL, writers=7), "first 7 writers"),
    ],
)
def test_reductions_follow_from_the_fields(scale: ReproductionScale, sentence: str) -> None:
    assert sentence in " ".join(scale.reductions)


@pytest.mark.parametrize("scale", [SMALL, SMOKE, PAPER])
def test_decay_has_the_papers_three_levels(scale: ReproductionScale) -> None:
    assert len({t // scale.decay_rounds for t in range(scale.task_rounds("emnist_cr"))}) == 3


@pytest.mark.parametrize(
    ("scale", "rounds"),
    [(PAPER, "the last 100 rounds"), (SMALL, "all 6 to 100 rounds"), (SMOKE, "all 3 rounds")],
)
def test_averaged_rounds(scale: ReproductionScale, rounds: str) -> None:
    assert scale.averaged_rounds == rounds
