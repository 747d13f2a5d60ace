"""Sentences that describe what a scale reduces."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from reproduction_runs import make_plan

from fedopt_paper.published import METHODS, SCAFFOLD, TASK_NAMES, paper_settings
from fedopt_paper.scales import PAPER, SCALES, SMALL, SMOKE, ReproductionScale


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [
        (SMALL, "100 rounds instead of 1,500 to 4,000."),
        (
            SMALL,
            "Tasks with long steps have fewer rounds: 30 for EMNIST CR, 30 for Shakespeare, 16 for SO NWP",
        ),
        (SMALL, "10 clients per round. The paper has 50 for SO NWP."),
        (SMALL, "3 x 3 rates around the paper's best rates"),
        (
            SMALL,
            "Some tasks have fewer rates: 2 x 2 for EMNIST CR, 2 x 2 for Shakespeare, 2 x 2 for EMNIST AE.",
        ),
        (SMALL, "No sweeps for CIFAR-10, CIFAR-100, SO NWP: runs have the paper's rates"),
        (SMALL, "The model is evaluated every 2 to 10 rounds"),
        (SMALL, "decay every 10 rounds instead of 500, which gives the paper's 3 levels"),
        (SMALL, "on 1,000 (CIFAR-10), 1,000 (CIFAR-100), 1,000 (SO NWP), 2,000 (other tasks) test examples"),
        (SMALL, "first 100 writers"),
        (SMALL, "means over the last tenth of the rounds instead of the last 100"),
        (PAPER, "every 50 rounds and every 10 of the last 100; the paper's code does it every round"),
        (replace(SMALL, decay_rounds=20), "every 20 rounds"),
        (replace(SMALL, writers=7), "first 7 writers"),
    ],
)
def test_reductions_follow_from_the_fields(scale: ReproductionScale, sentence: str) -> None:
    assert sentence in " ".join(scale.reductions)


@pytest.mark.parametrize("task", TASK_NAMES)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_scale_of_one_task_has_the_same_runs(scale: ReproductionScale, task: str) -> None:
    plans = [make_plan(scale=scale), make_plan(scale=scale).restrict([task])]
    for method in METHODS:
        assert plans[0].sweep(task, method) == plans[1].sweep(task, method)


def test_texts_name_only_the_selected_tasks() -> None:
    """SO LR has 100 rounds and sweeps. CIFAR-10 has 16 rounds and no sweeps."""
    assert SMALL.restrict(["so_lr"]).title == "scale: small, 100 rounds"
    assert SMALL.restrict(["so_lr", "cifar10"]).title == SMALL.title
    reductions = SMALL.restrict(["cifar10"]).reductions
    assert "16 rounds instead of 4,000." in reductions
    assert "No sweeps: runs have the paper's rates, and SCAFFOLD has those of FedAvg." in reductions
    assert not re.search("selects|Sweeps|tau", " ".join(reductions))
    assert SMALL.restrict(["so_lr"]).task_rounds("cifar10") == 16


@pytest.mark.parametrize("task", TASK_NAMES)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_texts_of_one_task_do_not_mention_others(scale: ReproductionScale, task: str) -> None:
    text = " ".join(scale.restrict([task]).reductions)
    others = [name for other, name in TASK_NAMES.items() if other != task]
    assert not re.search(rf"\b({'|'.join(others)})\b(?!-)", text)
    assert "other tasks" not in text and "Tasks with long steps" not in text
    assert ("writers" in text or "decay" in text) <= (task == "emnist_cr")


def test_costly_tasks_have_fewer_rates_or_no_sweeps() -> None:
    rates = {
        task: SMALL.rates(task, paper_settings(task).server_grid, 0.0)
        for task in ("so_lr", "emnist_cr", "cifar100")
    }
    assert rates == {"so_lr": (-0.5, 0.0, 0.5), "emnist_cr": (-0.5, 0.0), "cifar100": (0.0,)}


@pytest.mark.parametrize("method", METHODS)
def test_task_without_sweeps_has_the_papers_rates_only(method: str) -> None:
    plan = make_plan(scale=SMALL)
    (run,) = plan.sweep("cifar10", method)
    if method == SCAFFOLD:  # the paper prints no rates for it
        fedavg = plan.published("cifar10", "fedavg")
        assert run.point == fedavg.point and run.settings == fedavg.settings
    else:
        assert run == plan.published("cifar10", method)


@pytest.mark.parametrize(
    ("scale", "task", "intervals"),
    [
        (SMALL, "cifar10", (2, 2)),  # 16 rounds
        (SMALL, "emnist_cr", (3, 3)),  # 30 rounds
        (SMALL, "so_lr", (10, 10)),  # 100 rounds
        (PAPER, "so_lr", (50, 10)),
        (SMOKE, "so_lr", (1, 1)),
    ],
)
def test_evaluation_intervals(scale: ReproductionScale, task: str, intervals: tuple[int, int]) -> None:
    assert scale.evaluation_intervals(task) == intervals


@pytest.mark.parametrize("scale", [SMALL, SMOKE, PAPER])
def test_decay_has_the_papers_three_levels(scale: ReproductionScale) -> None:
    assert len({t // scale.decay_rounds for t in range(scale.task_rounds("emnist_cr"))}) == 3


@pytest.mark.parametrize(
    ("scale", "rounds"),
    [(PAPER, "the last 100 rounds"), (SMALL, "the last tenth of the rounds")],
)
def test_averaged_rounds(scale: ReproductionScale, rounds: str) -> None:
    assert scale.averaged_rounds == rounds


@pytest.mark.parametrize(
    ("scale", "rounds", "last"), [(PAPER, 1500, 100), (PAPER, 4000, 100), (SMALL, 100, 10), (SMALL, 16, 1)]
)
def test_short_runs_are_averaged_over_their_last_tenth(
    scale: ReproductionScale, rounds: int, last: int
) -> None:
    """With 100 rounds the paper's mean would be one over the whole training."""
    assert scale.last_rounds(rounds) == last
