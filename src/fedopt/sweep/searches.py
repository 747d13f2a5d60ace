"""Which trial runs next, and how far: the whole grid, or successive halving on rounds.

A search hands out orders and is told the scores; it knows nothing of processes and files. Algorithms are
tuned separately: each has its own candidates and its own winner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from fedopt.engine.evaluate import is_evaluated
from fedopt.runs.config import Config
from fedopt.runs.records import LAST_ROUNDS
from fedopt.sweep.slots import Order
from fedopt.sweep.trials import TRAIN_LOSS, Trial

REDUCTION = 3  # successive halving keeps a third and triples the rounds (Jamieson and Talwalkar, 2016)
MOST_REDUCTIONS = 4  # before a hundredth of the rounds, losses tell more of the initial model than of rates


class Search(Protocol):
    """Orders out, scores in. A score is None where a trial diverged; lower is better.

    What it orders must follow from the scores alone, not from when they arrive: a sweep that is continued
    is told everything at once.
    """

    def next(self) -> Order | None:
        """What can start now; None while a result is awaited, and at the end."""

    def waiting(self) -> int:
        """How many orders could start now."""

    def goes_on(self, trial: Trial, round: int, score: float | None) -> bool:
        """The answer to a question that an order has asked for; it may be asked twice."""

    def finished(self, order: Order, score: float | None) -> None:
        """An order was carried out; the score is that of a whole trial, None for one that was stopped."""


class GridSearch:
    """Every order, one after the other."""

    def __init__(self, orders: Iterable[Order]) -> None:
        self._orders = deque(orders)

    def next(self) -> Order | None:
        return self._orders.popleft() if self._orders else None

    def waiting(self) -> int:
        return len(self._orders)

    def goes_on(self, trial: Trial, round: int, score: float | None) -> bool:
        return True

    def finished(self, order: Order, score: float | None) -> None:
        pass


def rungs(candidates: int, rounds: int) -> list[int]:
    """The rounds after which all but a third of the candidates are dropped; the last is the full length.

    The first has two rounds at least: what clients lose in round 1 does not know the server's rate.

    >>> rungs(27, 270), rungs(2, 100), rungs(72, 4), rungs(360, 1500)
    ([10, 30, 90, 270], [33, 100], [4], [18, 55, 166, 500, 1500])
    """
    steps = [rounds]
    while candidates > 1 and steps[0] // REDUCTION >= 2 and len(steps) <= MOST_REDUCTIONS:
        steps.insert(0, steps[0] // REDUCTION)
        candidates = -(-candidates // REDUCTION)
    return steps


def seen_rungs(candidates: int, config: Config, select: str) -> list[int]:
    """The rungs at which `select` is known: after any round the train loss, else the next evaluation."""
    steps, rounds = rungs(candidates, config.rounds), config.rounds
    if select == TRAIN_LOSS:
        return steps
    evaluated = [
        at
        for at in range(1, rounds + 1)
        if is_evaluated(at, rounds, config.eval.every, config.eval.last_every)
    ]
    return sorted({next(at for at in evaluated if at >= step) for step in steps})


def halving_sizes(candidates: int, steps: Sequence[int]) -> list[int]:
    """How many candidates each rung has if none diverges.

    >>> halving_sizes(25, [1, 3, 9, 27])
    [25, 9, 3, 1]
    """
    sizes = []
    for _ in steps:
        sizes.append(candidates)
        candidates = -(-candidates // REDUCTION)
    return sizes


def window(rung: int, rounds: int) -> int:
    """Over how many last rounds a trial is judged at a rung: the paper's 100 at the end, before that the
    later half, because the first rounds say more of the initial model than of the rates."""
    return LAST_ROUNDS if rung >= rounds else min(LAST_ROUNDS, -(-rung // 2))


class Halving:
    """Successive halving for one algorithm: survivors of a rung go on where they stopped."""

    def __init__(self, trials: Sequence[Trial], rounds: int, steps: Sequence[int] | None = None) -> None:
        self._rounds = rounds
        self._rungs = deque(steps or rungs(len(trials), rounds))
        self._trials = list(trials)
        self._done = 0  # rounds that all who are left have
        self._begin()

    def _begin(self) -> None:
        rung = self._rungs[0]
        asks = (rung,) if rung < self._rounds else ()
        work = rung - self._done
        self._orders = deque(Order(trial, self._rounds, asks, work) for trial in self._trials)
        self._scores: dict[str, float | None] = {}  # path of a trial -> its score at this rung
        self._missing = {order.key for order in self._orders}

    def next(self) -> Order | None:
        return self._orders.popleft() if self._orders else None

    def waiting(self) -> int:
        return len(self._orders)

    def goes_on(self, trial: Trial, round: int, score: float | None) -> bool:
        self._scores[str(trial.path)] = score
        return False

    def finished(self, order: Order, score: float | None) -> None:
        self._missing.discard(order.key)
        if self._missing:
            return
        finite = {
            at: value
            for at, trial in enumerate(self._trials)
            if (value := self._scores.get(str(trial.path))) is not None
        }
        places = -(-len(self._trials) // REDUCTION)
        worst = max(sorted(finite.values())[:places], default=0.0)  # who is level with that goes on too
        self._done = self._rungs.popleft()
        self._trials = [self._trials[at] for at in finite if finite[at] <= worst] if self._rungs else []
        if self._trials:
            self._begin()


class Several:
    """Searches side by side, one for each algorithm."""

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = list(searches)
        self._of: dict[str, Search] = {}  # path of a trial -> the search that ordered it

    def next(self) -> Order | None:
        for search in self._searches:
            if (order := search.next()) is not None:
                self._of[order.key] = search
                return order
        return None

    def waiting(self) -> int:
        return sum(search.waiting() for search in self._searches)

    def goes_on(self, trial: Trial, round: int, score: float | None) -> bool:
        return self._of[str(trial.path)].goes_on(trial, round, score)

    def finished(self, order: Order, score: float | None) -> None:
        self._of[order.key].finished(order, score)
