"""Progress of a sweep on stderr: a bar over rounds in a terminal, one line per trial elsewhere."""

from __future__ import annotations

import time

from fedopt.formatting import format_duration
from fedopt.reports.progress import Pace, ProgressBar
from fedopt.runs.records import RunRecord
from fedopt.tuning.grid import describe_point
from fedopt.tuning.trials import WorkItem


class SweepProgress:
    """Shows complete, running and diverged trials, rounds, the remaining time and the best points."""

    def __init__(self, bar: ProgressBar, trials: int) -> None:
        """`trials` is the number of all trials of the sweep."""
        self._bar = bar
        self._trials, self._complete = trials, 0
        self._pace = Pace()
        self._rate: float | None = None  # rounds per second of all workers
        self._pace.update(0, time.monotonic())
        self._waiting: dict[str, int] = {}  # trial of the current batch -> rounds that it has to run
        self._rounds_after = 0  # in later batches
        self._rounds_run = self._rounds_finished = 0  # by all items, and by those that are complete
        self._running = 0
        self._diverged: set[str] = set()
        self._best: dict[str, tuple[float, str]] = {}  # algorithm -> score and point

    def log(self, text: str) -> None:
        self._bar.log(text)

    def start_batch(self, rounds: dict[str, int], rounds_after: int) -> None:
        """Begin a batch. `rounds` maps the path of each trial to the rounds that it has to run."""
        self._waiting, self._rounds_after = dict(rounds), rounds_after

    def update(self, rounds_run: int, running: int) -> None:
        """Show the number of rounds since the start, and how many trials are running."""
        self._rounds_run, self._running = rounds_run, running
        self._rate = self._pace.update(rounds_run, time.monotonic())
        self._refresh()

    def finish(self, item: WorkItem, record: RunRecord | None, score: float | None) -> None:
        """Note a complete item. In a search, lower scores are better."""
        trial, algorithm = item.trial, item.trial.config.algorithm
        status, rounds = ("missing", 0) if record is None else (record.status, record.rounds)
        was_run = trial.key in self._waiting
        self._rounds_finished += max(0, self._waiting.pop(trial.key, 0) - max(0, item.until - rounds))
        if status == "diverged":
            self._diverged.add(trial.key)
        is_final = item.until >= trial.config.rounds
        self._complete += is_final or status == "diverged"
        if is_final and score is not None and score < self._best.get(algorithm, (float("inf"), ""))[0]:
            self._best[algorithm] = score, describe_point(trial.point)
        if was_run and not self._bar.visible:
            outcome = f"round {item.until} of {trial.config.rounds}" if status == "pruned" else status
            value = "" if score is None else f" {abs(score):.4f}"
            best = f"; best of {algorithm}: {self._best[algorithm][1]}" if algorithm in self._best else ""
            status = ", ".join(filter(None, (self._status(), self._time_left())))
            self.log(f"{trial.label}: {outcome}{value} ({status}{best})")
        self._refresh()

    def _refresh(self) -> None:
        best = "; ".join(f"{algorithm} {point}" for algorithm, (_, point) in self._best.items())
        status = self._status() + (f"; best: {best}" if best else "")
        total = self._completed + self._remaining
        self._bar.update(self._completed, status, total, self._time_left())

    @property
    def _completed(self) -> int:
        return max(self._rounds_run, self._rounds_finished)

    @property
    def _remaining(self) -> int:
        in_progress = self._completed - self._rounds_finished
        return max(0, sum(self._waiting.values()) + self._rounds_after - in_progress)

    def _status(self) -> str:
        trials = f"{self._complete} of {self._trials} trials, {self._running} running"
        return f"{trials}, {len(self._diverged)} diverged" if self._diverged else trials

    def _time_left(self) -> str:
        if not self._remaining or not self._rate:
            return ""
        return f"{format_duration(self._remaining / self._rate)} left"
