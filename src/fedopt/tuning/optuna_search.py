"""Search with Optuna: a TPE sampler proposes points of the grid, a median rule stops poor trials early.

Trials run one at a time, so each proposal depends only on the scores of all earlier trials. The same command
therefore tries the same points on any number of workers, and after an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedopt import rng
from fedopt.errors import missing_extra
from fedopt.tuning.grid import Grid, Value
from fedopt.tuning.searches import Batch, Search
from fedopt.tuning.trials import Trial, WorkItem

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as Proposal
    from optuna.distributions import BaseDistribution

_MIN_BUDGET = 12  # trials of a small grid; of a larger grid, a third of the points is tried
_MAX_REPEATS = 20  # consecutive proposals of points that have been tried, before one is drawn at random


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("the search optuna", "optuna", "optuna") from error
    return optuna


def default_budget(points: int) -> int:
    """Return the default number of trials for a grid of `points` points.

    >>> default_budget(9), default_budget(25), default_budget(360)
    (9, 12, 120)
    """
    return min(points, max(_MIN_BUDGET, -(-points // 3)))


def optuna_search(
    grid: Grid, trials: Sequence[Trial], rungs: Sequence[int], budget: int, seed: int = 0
) -> Search:
    """Try up to `budget` points of a grid. At each rung, stop a trial that is worse than the median."""
    optuna = import_optuna()
    budget = min(budget, len(trials))
    random_trials = max(3, budget // 4)  # before the sampler has enough scores to model
    with _quiet(optuna):
        study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=random_trials, multivariate=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=max(2, random_trials // 2)),
        )
    return _search(optuna, study, _Space(optuna, grid, trials), rungs, budget)


def _search(optuna: Any, study: Study, space: _Space, rungs: Sequence[int], budget: int) -> Search:
    rounds = rungs[-1]
    tried: set[str] = set()
    for number in range(budget):
        proposal, trial = _propose(optuna, study, space, tried)
        tried.add(trial.key)
        for rung in rungs:
            rounds_after = (rounds - rung) + (budget - number - 1) * rounds
            (score,) = yield Batch([WorkItem(trial, rung)], rounds_after)
            if score is None:  # a diverged trial is worse than any other
                study.tell(proposal, math.inf)
                break
            proposal.report(score, rung)
            if rung < rounds and proposal.should_prune():
                study.tell(proposal, state=optuna.trial.TrialState.PRUNED)
                break
            if rung == rounds:
                study.tell(proposal, score)


def _propose(optuna: Any, study: Study, space: _Space, tried: set[str]) -> tuple[Proposal, Trial]:
    """Ask the study for a point that has not been tried. Repeated proposals are discarded."""
    for _ in range(_MAX_REPEATS):
        proposal = study.ask(space.distributions)
        trial = space.trial_at(proposal.params)
        if trial.key not in tried:
            return proposal, trial
        study.tell(proposal, state=optuna.trial.TrialState.FAIL)
    untried = [trial for trial in space.trials if trial.key not in tried]
    draw = rng.generator("sweep", "untried", len(tried))
    trial = untried[int(draw.integers(len(untried)))]
    study.enqueue_trial(space.to_parameters(trial))
    return study.ask(space.distributions), trial


class _Space:
    """The grid as Optuna parameters: each axis is the index of its value.

    Numeric axes are ordered, so that the sampler can use that neighbouring values are similar.
    """

    def __init__(self, optuna: Any, grid: Grid, trials: Sequence[Trial]) -> None:
        self.trials = trials
        self._axes = {axis: sorted(v) if _is_numeric(v) else list(v) for axis, v in grid.items()}
        self._by_point = {tuple(trial.point[axis] for axis in self._axes): trial for trial in trials}
        kinds = optuna.distributions
        self.distributions: dict[str, BaseDistribution] = {
            axis: kinds.IntDistribution(0, len(values) - 1)
            if _is_numeric(values)
            else kinds.CategoricalDistribution(tuple(range(len(values))))
            for axis, values in self._axes.items()
        }

    def trial_at(self, parameters: dict[str, Any]) -> Trial:
        return self._by_point[tuple(values[parameters[axis]] for axis, values in self._axes.items())]

    def to_parameters(self, trial: Trial) -> dict[str, int]:
        return {axis: values.index(trial.point[axis]) for axis, values in self._axes.items()}


def _is_numeric(values: Sequence[Value]) -> bool:
    return all(isinstance(value, float | int) and not isinstance(value, bool) for value in values)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Suppress the message that Optuna logs for a new study."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)
