"""Search by Optuna: TPE proposes points of the grid, its median rule stops trials on the way.

A proposal, and whether a trial is stopped, follow from the trials that were ordered `LAG` or more before it
and from nothing else. So the same command tries the same points whatever finishes first, on any number of
workers, and after a kill the study is rebuilt from what is on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedopt import rng
from fedopt.errors import UserError
from fedopt.sweep.grid import Grid, Value, points
from fedopt.sweep.searches import rungs
from fedopt.sweep.slots import Order
from fedopt.sweep.trials import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

LAG = 2  # trials that may be under way, the proposed one among them; more cores share the work of these
SEED = 0
LEAST = 12  # trials by default, however small the grid; a third of a larger one
_TRIES = 20  # proposals of points that were tried before, until one is drawn that was not


def require() -> Any:
    """Optuna, or the one line that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("--search optuna needs Optuna: pip install 'fedopt[optuna]'") from error
    return optuna


def default_budget(points: int) -> int:
    """How many trials a search makes where nobody says.

    >>> default_budget(9), default_budget(25), default_budget(360)
    (9, 12, 120)
    """
    return min(points, max(LEAST, -(-points // 3)))


@dataclass
class _Tried:
    """A point that was ordered, and what was heard of it since."""

    params: dict[str, int]  # its positions on the axes
    asked: Any  # the study's own trial
    scores: dict[int, float] = field(default_factory=dict)  # rung -> score
    stopped: bool = False  # by the median rule
    over: bool = False
    score: float | None = None  # of the whole trial


class Tpe:
    """TPE with pruning over one algorithm's grid, until `budget` points were tried."""

    def __init__(
        self,
        grid: Grid,
        trials: Sequence[Trial],
        rounds: int,
        budget: int,
        steps: Sequence[int] | None = None,
        seed: int = SEED,
    ) -> None:
        self._optuna = require()
        self._grid, self._rounds = {axis: _ordered(values) for axis, values in grid.items()}, rounds
        self._trials = {_key(trial.point): trial for trial in trials}
        assert list(self._trials) == [_key(point) for point in points(grid)]
        self._budget = min(budget, len(trials))
        self._asks = tuple(step for step in steps or rungs(len(trials), rounds) if step < rounds)
        self._tried: dict[str, _Tried] = {}  # path of the trial -> what became of it, as ordered
        self._told: list[FrozenTrial] = []  # the first of them, as the study knows them
        at_random = max(3, self._budget // 4)  # before TPE has something to learn from
        self._sampler = self._optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=at_random,
            multivariate=True,
            constant_liar=True,
        )
        self._pruner = self._optuna.pruners.MedianPruner(n_startup_trials=max(2, at_random // 2))
        self._study = self._new_study()

    def next(self) -> Order | None:
        if not self.waiting():
            return None
        for tried in list(self._tried.values())[len(self._told) : max(0, len(self._tried) - LAG + 1)]:
            self._tell(tried)
        trial, asked = self._propose()
        self._tried[str(trial.path)] = _Tried(dict(asked.params), asked)
        return Order(trial, self._rounds, self._asks)

    def waiting(self) -> int:
        """How many may be proposed now: only those whose predecessors are all over, `LAG` aside."""
        over = 0
        for tried in self._tried.values():
            if not tried.over:
                break
            over += 1
        return min(self._budget, over + LAG) - len(self._tried)

    def goes_on(self, trial: Trial, round: int, score: float | None) -> bool:
        """By the median of what earlier trials had at this round; one without a score has diverged."""
        if score is None:
            return False
        path = str(trial.path)
        tried = self._tried[path]
        tried.scores[round] = score
        known = max(0, list(self._tried).index(path) - LAG + 1)
        earlier = self._new_study()
        earlier.add_trials(self._told[:known])
        so_far = {at: value for at, value in tried.scores.items() if at <= round}
        tried.stopped = self._pruner.prune(earlier, self._frozen(tried, "RUNNING", None, so_far))
        return not tried.stopped

    def finished(self, order: Order, score: float | None) -> None:
        tried = self._tried[order.key]
        tried.over, tried.score = True, score

    # -- the study

    def _tell(self, tried: _Tried) -> None:
        """Let the study know how a trial ended."""
        whole = tried.score is not None
        if not whole and not tried.stopped:
            tried.scores.clear()  # it diverged: worse than any that was stopped, however it began
        state = "COMPLETE" if whole else "PRUNED"
        self._told.append(self._frozen(tried, state, tried.score, tried.scores))
        self._close(tried.asked, self._told[-1])

    def _close(self, asked: Any, known: FrozenTrial) -> None:
        for round, value in known.intermediate_values.items():
            asked.report(value, round)
        complete = known.state == self._optuna.trial.TrialState.COMPLETE
        self._study.tell(asked, known.value if complete else None, state=known.state)

    def _frozen(
        self, tried: _Tried, state: str, score: float | None, scores: Mapping[int, float]
    ) -> FrozenTrial:
        frozen: FrozenTrial = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState[state],
            value=score,
            params=tried.params,
            distributions=self._space(),
            intermediate_values=dict(scores),
        )
        return frozen

    def _propose(self) -> tuple[Trial, Any]:
        """The next point; one that was tried before is answered at once, and another asked for."""
        for _ in range(_TRIES):
            asked = self._study.ask(self._space())
            trial = self._trials[self._point(asked.params)]
            if str(trial.path) not in self._tried:
                return trial, asked
            position = list(self._tried).index(str(trial.path))
            if position < len(self._told):
                self._close(asked, self._told[position])
            else:  # under way: nothing is known, and the sampler passes over what failed
                self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)
        untried = [t for t in self._trials.values() if str(t.path) not in self._tried]
        draw = rng.generator("sweep", "untried", len(self._tried))
        trial = untried[int(draw.integers(len(untried)))]
        self._study.enqueue_trial(
            {axis: values.index(trial.point[axis]) for axis, values in self._grid.items()}
        )
        return trial, self._study.ask(self._space())

    def _space(self) -> dict[str, BaseDistribution]:
        """Positions on each axis: near ones are alike where values have an order."""
        kinds = self._optuna.distributions
        return {
            axis: kinds.IntDistribution(0, len(values) - 1)
            if _have_order(values)
            else kinds.CategoricalDistribution(tuple(range(len(values))))
            for axis, values in self._grid.items()
        }

    def _point(self, params: dict[str, Any]) -> str:
        return _key({axis: values[int(params[axis])] for axis, values in self._grid.items()})

    def _new_study(self) -> Study:
        with _quiet(self._optuna):
            study: Study = self._optuna.create_study(sampler=self._sampler)
        return study


def _have_order(values: Sequence[Value]) -> bool:
    return all(isinstance(value, float | int) and not isinstance(value, bool) for value in values)


def _ordered(values: Sequence[Value]) -> list[Value]:
    return sorted(values) if _have_order(values) else list(values)


def _key(point: Any) -> str:
    return repr(sorted(point.items()))


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without the line that Optuna logs for each new study."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
