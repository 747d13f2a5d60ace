"""Grid search and successive halving on loss functions: batches, rungs and survivors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_search import PlayedSearch, bowl, make_trials

from fedopt.tuning.searches import (
    grid_search,
    halving_search,
    halving_sizes,
    plan_evaluated_rungs,
    plan_rungs,
)
from fedopt.tuning.trials import Trial, make_trial


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    """25 trials of 27 rounds on a grid of 5 x 5 points."""
    return list(make_trials())


def test_grid_search_runs_all_trials_in_order_in_one_batch(trials: list[Trial]) -> None:
    (batch,) = PlayedSearch([grid_search(trials)], bowl).batches
    assert [(item.trial.key, item.until) for item in batch.items] == [(t.key, 27) for t in trials]
    assert batch.rounds_after == 0


def test_halving_equals_the_calculation_by_hand(trials: list[Trial]) -> None:
    assert plan_rungs(25, 27) == [3, 9, 27] and halving_sizes(25, [1, 3, 9, 27]) == [25, 9, 3, 1]
    played = PlayedSearch([halving_search(trials, [3, 9, 27])], bowl)
    assert [(len(batch.items), batch.items[0].until) for batch in played.batches] == [
        (25, 3),
        (9, 9),
        (3, 27),
    ]
    assert played.work == 16 * 3 + 6 * 9 + 3 * 27  # 183 of 675 rounds
    assert [batch.rounds_after for batch in played.batches] == [9 * 6 + 3 * 18, 3 * 18, 0]
    assert played.best(trials).point == {"client_lr": -1.0, "server_lr": 0.0}
    # losses 1 + (c + 1)^2 + s^2 / 2: the three smallest are at (-1, 0), (-1, -1) and (-1, 1)
    survivors = [item.trial.point for item in played.batches[2].items]
    assert [(p["client_lr"], p["server_lr"]) for p in survivors] == [(-1.0, -1.0), (-1.0, 0.0), (-1.0, 1.0)]


def test_trials_that_tie_with_the_last_survivor_continue(trials: list[Trial]) -> None:
    played = PlayedSearch([halving_search(trials[:6], [2, 6])], lambda trial, round: 1.0)
    assert [len(batch.items) for batch in played.batches] == [6, 6]


def test_halving_ends_when_all_trials_have_diverged(trials: list[Trial]) -> None:
    played = PlayedSearch([halving_search(trials, [3, 9, 27])], lambda trial, round: None)
    assert len(played.batches) == 1


def test_rungs_of_a_metric_are_evaluated_rounds(trials: list[Trial]) -> None:
    config = trials[0].config  # a run of 27 rounds is evaluated after every second round, 7, 17 and 27
    assert plan_evaluated_rungs(25, config, "train_loss") == [3, 9, 27]
    assert plan_evaluated_rungs(25, config, "recall_at_5") == [4, 10, 27]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(count=st.integers(1, 25), rounds=st.integers(1, 100), diverged=st.sets(st.integers(0, 24)))
def test_halving_keeps_the_best_trial_to_the_end(
    trials: list[Trial], count: int, rounds: int, diverged: set[int]
) -> None:
    candidates, lost = trials[:count], {trials[at].key for at in diverged}

    def loss(trial: Trial, round: int) -> float | None:
        tie_breaker = 1e-6 * trials.index(trial)
        return None if trial.key in lost else bowl(trial, round) + tie_breaker

    rungs = plan_rungs(count, rounds)
    played = PlayedSearch([halving_search(candidates, rungs)], loss)
    known = [t for t in candidates if t.key not in lost]
    if known:
        best = min(known, key=lambda t: loss(t, 1) or 0.0)
        assert played.rounds[best.key] == rounds
    sizes = [len(batch.items) for batch in played.batches]
    assert all(n <= limit for n, limit in zip(sizes, halving_sizes(count, rungs), strict=False))
    assert set(played.rounds.values()) <= set(rungs)


def test_algorithms_are_searched_separately_but_share_batches() -> None:
    plans = [
        [make_trial(Path("t"), "so_lr", name, {"client_lr": v}, {"rounds": 9}) for v in (-1.0, 0.0, 1.0)]
        for name in ("fedavg", "fedadagrad")
    ]

    def loss(trial: Trial, round: int) -> float:
        return (1000.0 if trial.config.algorithm == "fedavg" else 0.0) + float(trial.point["client_lr"])

    played = PlayedSearch([halving_search(plan, [3, 9]) for plan in plans], loss)
    assert [len(batch.items) for batch in played.batches] == [6, 2]
    complete = [key for key, rounds in played.rounds.items() if rounds == 9]
    assert sorted(complete) == sorted(plan[0].key for plan in plans)
