"""Progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from math import isfinite

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedopt.engine.loop import Step
from fedopt.formatting import format_duration
from fedopt.runs.config import Config

_SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """A bar with a title, a count and a status text; without a terminal, only logged lines."""

    def __init__(self, title: str, total: int, quiet: bool = False) -> None:
        """`quiet` shows and logs nothing."""
        self._console = Console(stderr=True, quiet=quiet)
        self._progress: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            columns = (
                TextColumn("{task.description:<11}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[status]}"),
            )
            self._progress = Progress(*columns, console=self._console)
            self._task = self._progress.add_task(title, total=total, status="starting")

    @property
    def visible(self) -> bool:
        """Whether a bar is shown; if not, log lines instead."""
        return self._progress is not None

    def __enter__(self) -> ProgressBar:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress:
            self._progress.stop()

    def update(self, completed: int, status: str, total: int | None = None) -> None:
        if self._progress:
            self._progress.update(self._task, completed=completed, total=total, status=status)

    def log(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class RunProgress:
    """Shows the steps of a run: round, train loss, last evaluation, rate and remaining time."""

    def __init__(self, bar: ProgressBar, config: Config) -> None:
        self._bar, self._title, self._rounds = bar, config.algorithm, config.rounds
        self._start: tuple[float, int] | None = None  # time and round of the first step
        self._last_line = 0.0
        self._evaluation = ""

    def on_step(self, step: Step) -> None:
        """Show a finished round. Lines appear for evaluations, the last round and every ten seconds."""
        done, now = step.position.round, time.monotonic()
        status = self._status(step, now)
        self._bar.update(done, status)
        is_due = now - self._last_line >= _SECONDS_BETWEEN_LINES
        if not self._bar.visible and (is_due or step.evaluation or done == self._rounds):
            self._last_line = now
            self._bar.log(f"{self._title} round {done}/{self._rounds} {status}")

    def _status(self, step: Step, now: float) -> str:
        parts = []
        if step.evaluation:
            metrics = [name for name in step.evaluation if name != "loss"]  # a task may have none
            value = step.evaluation[metrics[0] if metrics else "loss"]
            shown = f"{value:.4f}" if isfinite(value) else "not finite"
            self._evaluation = f"{metrics[0] if metrics else 'test loss'} {shown}"
        if step.report is not None:
            loss = step.report.loss
            parts.append("loss not finite" if loss is None else f"loss {loss:.4f}")
            if step.report.rejected:
                parts.append(f"{len(step.report.rejected)} clients rejected")
        if self._evaluation:
            parts.append(self._evaluation)
        return "  ".join([*parts, *self._pace(step.position.round, now)])

    def _pace(self, done: int, now: float) -> list[str]:
        """Rounds per second and the remaining time."""
        if self._start is None:
            self._start = now, done
        start, first = self._start
        if done == first or now == start:
            return []
        rate = (done - first) / (now - start)
        remaining = [f"{format_duration((self._rounds - done) / rate)} left"] if done < self._rounds else []
        return [f"{rate:.2f} rounds/s", *remaining]
