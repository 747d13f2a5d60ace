"""Searches: which trials run, and for how many rounds.

A search is a generator. It yields a batch of work items and receives the score of each item. Lower scores
are better; the score of a diverged trial is None. A search knows nothing about processes and files. Its
batches depend on the scores only, so an interrupted search can be repeated from recorded scores.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from fedopt.engine.evaluate import is_evaluated
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.runs.config import Config
from fedopt.tuning.trials import Trial, WorkItem

REDUCTION = 3  # successive halving keeps a third and triples the rounds (Jamieson and Talwalkar, 2016)
MAX_REDUCTIONS = 2  # rungs before a ninth of the rounds drop rates that start slowly (docs/claims.md)


class Batch(NamedTuple):
    """Work items that may run at the same time."""

    items: list[WorkItem]
    rounds_after: int = 0  # an upper bound of the rounds in later batches, to estimate the remaining time


Scores = list[float | None]
Search = Generator[Batch, Scores, None]


def run_searches(searches: Iterable[Search], run_batch: Callable[[Batch], Scores]) -> None:
    """Run several searches in step, so that their batches share the workers."""
    batches = {search: next(search) for search in searches}
    while batches:
        items = [item for batch in batches.values() for item in batch.items]
        scores = iter(run_batch(Batch(items, sum(batch.rounds_after for batch in batches.values()))))
        following: dict[Search, Batch] = {}
        for search, batch in batches.items():
            try:
                following[search] = search.send(list(islice(scores, len(batch.items))))
            except StopIteration:
                pass
        batches = following


def grid_search(trials: Sequence[Trial]) -> Search:
    """Run every trial for all its rounds."""
    yield Batch([WorkItem(trial, trial.config.rounds) for trial in trials])


def halving_search(trials: Sequence[Trial], rungs: Sequence[int]) -> Search:
    """Successive halving: run all trials to a rung, then continue the best third from there."""
    for position, rung in enumerate(rungs):
        later = rungs[position + 1 :]
        sizes = halving_sizes(len(trials), [rung, *later])[1:]
        rounds_after = sum(n * (b - a) for n, a, b in zip(sizes, [rung, *later], later, strict=False))
        scores = yield Batch([WorkItem(trial, rung) for trial in trials], rounds_after)
        trials = _best_third(trials, scores)
        if not trials:
            return


def _best_third(trials: Sequence[Trial], scores: Scores) -> list[Trial]:
    """The best third of the trials, rounded up, in their order. Ties with the last of them stay too."""
    known = sorted(score for score in scores if score is not None)
    if not known:
        return []
    threshold = known[: -(-len(trials) // REDUCTION)][-1]
    return [t for t, score in zip(trials, scores, strict=True) if score is not None and score <= threshold]


def plan_rungs(candidates: int, rounds: int) -> list[int]:
    """Return the rounds after which only a third of the candidates continues; the last is `rounds`.

    The first rung has at least two rounds: the client loss of round 1 does not depend on the server rate.

    >>> plan_rungs(27, 270), plan_rungs(2, 100), plan_rungs(72, 4), plan_rungs(360, 1500)
    ([30, 90, 270], [33, 100], [4], [166, 500, 1500])
    """
    rungs = [rounds]
    while candidates > 1 and rungs[0] // REDUCTION >= 2 and len(rungs) <= MAX_REDUCTIONS:
        rungs.insert(0, rungs[0] // REDUCTION)
        candidates = -(-candidates // REDUCTION)
    return rungs


def plan_evaluated_rungs(candidates: int, config: Config, select: str) -> list[int]:
    """Return the rungs, moved to the next round at which `select` is recorded.

    The training loss is recorded in every round, a metric only at evaluations.
    """
    rounds = config.rounds
    rungs = plan_rungs(candidates, rounds)
    if select == TRAIN_LOSS:
        return rungs
    evaluated = [
        round
        for round in range(1, rounds + 1)
        if is_evaluated(round, rounds, config.eval.every, config.eval.last_every)
    ]
    return sorted({next(round for round in evaluated if round >= rung) for rung in rungs})


def halving_sizes(candidates: int, rungs: Sequence[int]) -> list[int]:
    """Return the number of candidates at each rung if none diverges and none tie.

    >>> halving_sizes(25, [1, 3, 9, 27])
    [25, 9, 3, 1]
    """
    sizes = []
    for _ in rungs:
        sizes.append(candidates)
        candidates = -(-candidates // REDUCTION)
    return sizes
