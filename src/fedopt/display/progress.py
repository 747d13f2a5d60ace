"""Progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedopt.engine.loop import Step
from fedopt.runs.config import Config

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows rounds, rate, time left, train loss and the last evaluation of one run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._bar_task: TaskID | None = None
        self._began: tuple[float, int] | None = None  # time and round of the first step
        self._last_line = 0.0
        self._evaluation = ""

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description:<11}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[news]}"),
                TimeRemainingColumn(compact=True),
            )
            self._bar = Bar(*columns, console=self._console)
            self._bar.start()
            self._bar_task = self._bar.add_task(
                self._config.algorithm, total=self._config.rounds, news="starting"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A line for the user."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, step: Step) -> None:
        """Called after every round."""
        done, now = step.position.round, time.monotonic()
        if self._began is None:
            self._began = (now, done)
        news = self._news(step, now)
        if self._bar and self._bar_task is not None:
            self._bar.update(self._bar_task, completed=done, news=news)
        elif (
            now - self._last_line >= _SECONDS_BETWEEN_LINES or step.evaluation or done == self._config.rounds
        ):
            self._last_line = now
            self.say(
                f"{self._config.algorithm} round {done}/{self._config.rounds} {news}{self._left(done, now)}"
            )

    def _news(self, step: Step, now: float) -> str:
        parts = []
        if step.evaluation:
            name = list(step.evaluation)[1]
            self._evaluation = f"{name} {step.evaluation[name]:.4f}"
        if step.report is not None:
            loss = step.report.loss
            parts.append("loss not finite" if loss is None else f"loss {loss:.4f}")
            if step.report.rejected:
                parts.append(f"{len(step.report.rejected)} clients left out")
        parts += [self._evaluation] if self._evaluation else []
        rate = self._rate(step.position.round, now)
        parts += [f"{rate:.2f} rounds/s"] if rate else []
        return "  ".join(parts)

    def _rate(self, done: int, now: float) -> float:
        assert self._began is not None
        began, first = self._began
        return (done - first) / (now - began) if now > began else 0.0

    def _left(self, done: int, now: float) -> str:
        rate = self._rate(done, now)
        return (
            f"  {(self._config.rounds - done) / rate:.0f} s left"
            if rate and done < self._config.rounds
            else ""
        )
