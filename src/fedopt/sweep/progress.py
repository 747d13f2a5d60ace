"""How far a sweep is, on stderr: a bar in a terminal, a line per trial elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from fedopt.formatting import format_duration
from fedopt.sweep.grid import describe
from fedopt.sweep.slots import Order


class SweepProgress:
    """Counts trials done, running and diverged, guesses the time left, and names the best so far."""

    def __init__(self, title: str, orders: int, work: int) -> None:
        """`orders` and the rounds that they take, `work`, are a guess where a search decides on the way."""
        self._console = Console(stderr=True)
        self._orders, self._work = orders, work
        self._running: dict[str, int | None] = {}  # order -> how far it is, once that is known
        self._over, self._diverged = 0, set[str]()
        self._best: dict[str, tuple[float, str]] = {}  # algorithm -> score and point
        self._rounds_run = 0  # that were heard of
        self._began = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn(title),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[news]}"),
            )
            self._bar = Bar(*columns, console=self._console)
            self._task = self._bar.add_task(title, total=orders, news="starting")

    def __enter__(self) -> SweepProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def started(self, order: Order) -> None:
        self._running[order.key] = None

    def advanced(self, order: Order, round: int) -> None:
        before = self._running[order.key]
        if before is not None:  # the first round heard of may be one that a resumed trial had before
            self._rounds_run += max(0, round - before)
        self._running[order.key] = round

    def ended(self, order: Order, status: str, score: float | None, ran: bool) -> None:
        """An order is over; `score` is lower for better."""
        at = self._running.pop(order.key, None)
        self._over += 1
        self._orders = max(self._orders, self._over + len(self._running))
        self._work -= order.rounds if order.work is None else order.work
        if status == "diverged":
            self._diverged.add(order.key)
        algorithm, point = order.trial.config.algorithm, describe(order.trial.point)
        if score is not None and (algorithm not in self._best or score < self._best[algorithm][0]):
            self._best[algorithm] = (score, point)
        if not self._bar and ran:
            value = "" if score is None else f" {abs(score):.4f}"
            best = f"; best of {algorithm}: {self._best[algorithm][1]}" if algorithm in self._best else ""
            done = f"{self._over}/{self._orders} done"
            how = f"stopped after round {at}" if status == "pruned" else status
            self.say(f"{algorithm} {point}: {how}{value} ({done}, {self._counts()}{best})")
        self.refresh()

    def refresh(self) -> None:
        if self._bar:
            best = "; ".join(f"{name} {point}" for name, (_, point) in self._best.items())
            self._bar.update(
                self._task,
                completed=self._over,
                total=self._orders,
                news=self._counts() + (f"; best: {best}" if best else ""),
            )

    def _counts(self) -> str:
        counts = [
            f"{len(self._running)} running",
            f"{len(self._diverged)} diverged",
            self._left(),
        ]
        return ", ".join(filter(None, counts))

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _left(self) -> str:
        """The time left, by the rate at which rounds were run so far."""
        if not self._rounds_run:
            return ""
        ahead = self._work - sum(round or 0 for round in self._running.values())
        return f"{format_duration(max(0, ahead) * (time.monotonic() - self._began) / self._rounds_run)} left"
