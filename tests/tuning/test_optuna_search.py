"""The Optuna search on loss functions: proposals, pruning and reproducibility."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_search import GRID, Loss, PlayedSearch, bowl, make_trials

from fedopt.errors import MissingExtra
from fedopt.tuning.grid import grid_points
from fedopt.tuning.optuna_search import import_optuna, optuna_search
from fedopt.tuning.trials import Trial, make_trial

RUNGS = [3, 9, 27]


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return list(make_trials())


def play(trials: list[Trial], loss: Loss = bowl, budget: int = 12, seed: int = 0) -> PlayedSearch:
    return PlayedSearch([optuna_search(GRID, trials, RUNGS, budget, seed)], loss)


def test_search_tries_each_point_once_and_finds_a_good_one(trials: list[Trial]) -> None:
    played = play(trials)
    assert len(played.rounds) == 12
    assert all(len(batch.items) == 1 for batch in played.batches)
    best = played.best(trials)
    assert bowl(best, 27) <= sorted(bowl(t, 27) for t in trials)[2]
    assert played.work < 12 * 27  # some trials were stopped early
    assert set(played.rounds.values()) <= set(RUNGS)


@pytest.mark.parametrize("seed", range(5))
def test_search_is_better_than_the_median_point_for_every_seed(trials: list[Trial], seed: int) -> None:
    best = play(trials, seed=seed).best(trials)
    assert bowl(best, 27) <= sorted(bowl(t, 27) for t in trials)[5]


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.sets(st.integers(0, 24), max_size=12))
def test_repeated_search_makes_the_same_proposals(trials: list[Trial], diverged: set[int]) -> None:
    lost = {trials[at].key for at in diverged}

    def loss(trial: Trial, round: int) -> float | None:
        return None if trial.key in lost and round > 3 else bowl(trial, round)

    first, second = play(trials, loss), play(trials, loss)
    assert [batch.items for batch in first.batches] == [batch.items for batch in second.batches]
    assert all(rounds <= 9 for key, rounds in first.rounds.items() if key in lost)


def test_small_grid_is_tried_in_full() -> None:
    grid = {"client_lr": (-1.0, 0.0), "weighting": ("examples", "uniform")}
    few = [make_trial(Path("t"), "so_lr", "fedavg", point, {"rounds": 3}) for point in grid_points(grid)]
    played = PlayedSearch(
        [optuna_search(grid, few, [3], budget=100)], lambda trial, round: float(trial.point["client_lr"])
    )
    assert sorted(played.rounds) == sorted(trial.key for trial in few)


def test_trial_worse_than_the_median_is_stopped_and_a_better_one_is_not(trials: list[Trial]) -> None:
    search = optuna_search(GRID, trials, RUNGS, 12)
    batch = next(search)
    for _ in range(4 * len(RUNGS)):  # four complete trials with a score of 1
        batch = search.send([1.0])
    better = batch.items[0].trial
    batch = search.send([0.5])
    assert batch.items[0] == (better, 9)
    batch = search.send([None])  # it diverges, which ends the trial
    worse = batch.items[0].trial
    assert worse != better and batch.items[0].until == 3
    batch = search.send([2.0])
    assert batch.items[0].trial not in (better, worse)


def test_rounds_after_is_an_upper_bound(trials: list[Trial]) -> None:
    batches = play(trials).batches
    assert batches[0].rounds_after == (27 - 3) + 11 * 27
    assert batches[-1].rounds_after == 27 - batches[-1].items[0].until


def test_missing_optuna_is_reported_with_the_extra() -> None:
    with patch.dict("sys.modules", {"optuna": None}), pytest.raises(MissingExtra) as error:
        import_optuna()
    assert (error.value.package, error.value.extra) == ("optuna", "optuna")
