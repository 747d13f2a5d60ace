"""Runs a search against a loss function instead of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopt.tuning.grid import grid_points
from fedopt.tuning.searches import Batch, Scores, Search, run_searches
from fedopt.tuning.trials import Trial, make_trial

GRID = {
    "client_lr": tuple(float(v) for v in range(-4, 1)),
    "server_lr": tuple(float(v) for v in range(-3, 2)),
}
Loss = Callable[[Trial, int], float | None]  # the score after a round; None if the trial has diverged


def make_trials(grid: Mapping[str, tuple[Any, ...]] = GRID, rounds: int = 27) -> Iterator[Trial]:
    for point in grid_points(grid):
        yield make_trial(Path("t"), "so_lr", "fedavg", point, {"rounds": rounds})


def bowl(trial: Trial, round: int) -> float:
    """Smallest at client_lr=-1, server_lr=0, and decreasing with the rounds."""
    client, server = float(trial.point["client_lr"]), float(trial.point["server_lr"])
    return 1.0 + (client + 1) ** 2 + 0.5 * server**2 + 1.0 / round


class PlayedSearch:
    """The batches of searches, and the rounds that each trial reached."""

    def __init__(self, searches: Sequence[Search], loss: Loss) -> None:
        self.batches: list[Batch] = []
        self.rounds: dict[str, int] = {}  # trial -> rounds
        self._loss = loss
        run_searches(searches, self._run)

    def _run(self, batch: Batch) -> Scores:
        self.batches.append(batch)
        for item in batch.items:
            assert item.until > self.rounds.get(item.trial.key, 0)  # no item is requested twice
            self.rounds[item.trial.key] = item.until
        return [self._loss(item.trial, item.until) for item in batch.items]

    @property
    def work(self) -> int:
        return sum(self.rounds.values())

    def best(self, trials: Sequence[Trial]) -> Trial:
        """The best of the trials with all rounds."""
        complete = [t for t in trials if self.rounds.get(t.key) == t.config.rounds]
        return min(complete, key=lambda t: self._loss(t, t.config.rounds) or 0.0)
