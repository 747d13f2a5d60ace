"""Progress on stderr: a bar in a terminal, one line in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column

from fedopt.formatting import count_noun, format_count, format_duration, metric_unit

if TYPE_CHECKING:
    from fedopt.engine.loop import Step
    from fedopt.runs.config import Config

MIN_SECONDS, MIN_ROUNDS = 120.0, 100  # of the window of a rate
_SECONDS_BETWEEN_UPDATES = 0.2  # of a notebook; browsers need not draw every round
_SECONDS_BETWEEN_LINES = 10.0
_LONG_EVALUATION = 30.0  # seconds
_SUGGESTED_SAMPLE = 1000  # clients
_TITLE_WIDTH, _BAR_WIDTH, _SMALLEST_BAR = 12, 24, 8
_NEEDED_WIDTH = 30  # of count and remaining time, with gaps


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class NotebookLine:
    """One line below the cell. It appears with the first text."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown, self._last_update = "", 0.0

    def show(self, text: str, now: bool) -> None:
        """Replace the text. Frequent changes are skipped, unless `now` is set."""
        is_early = time.monotonic() - self._last_update < _SECONDS_BETWEEN_UPDATES
        if text == self._shown or (is_early and not now):
            return
        from IPython.display import display

        content = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content, raw=True)
        self._shown, self._last_update = text, time.monotonic()


class Pace:
    """Rounds per second over at least the last 100 rounds and two minutes.

    A mean over the whole run would be wrong for hours after a pause of the process or a slow start. `rounds`
    is a larger window: it must contain the rounds between two evaluations, which take longer.

    >>> pace = Pace()
    >>> [pace.update(round, seconds) for round, seconds in ((0, 10.0), (1, 14.0), (2, 18.0))]
    [None, 0.25, 0.25]
    """

    def __init__(self, rounds: int = MIN_ROUNDS) -> None:
        self._rounds = max(rounds, MIN_ROUNDS)
        self._marks: deque[tuple[int, float]] = deque()  # rounds and times, at most one per second

    def update(self, round: int, seconds: float) -> float | None:
        """Record that a round has ended. Return the rate; None until a second round has taken time."""
        marks = self._marks
        while len(marks) > 1 and seconds - marks[1][1] >= MIN_SECONDS and round - marks[1][0] >= self._rounds:
            marks.popleft()
        if not marks or (round > marks[-1][0] and seconds - marks[-1][1] >= 1):
            marks.append((round, seconds))
        first, start = marks[0]
        return (round - first) / (seconds - start) if round > first and seconds > start else None


class ProgressBar:
    """A bar with count, remaining time, title and status; without a terminal, only logged lines.

    A notebook shows the same as one line of text. A narrow terminal shows a shorter status, then no title
    and a shorter bar.
    """

    def __init__(self, title: str, total: int, quiet: bool = False) -> None:
        """`quiet` shows and logs nothing."""
        self._console = Console(stderr=True, quiet=quiet)
        self._progress: Progress | None = None
        self._line: NotebookLine | None = None
        self._title, self._completed, self._status, self._remaining = title, 0, "", ""
        self.total = self._total = total
        self._logged_once: set[str] = set()
        if in_notebook() and not quiet:
            self._line = NotebookLine()
        elif sys.stderr.isatty() and not quiet:
            self._progress = Progress(*_columns(self._console.width), console=self._console, expand=True)
            self._task = self._progress.add_task(title, total=total, status="starting", remaining="")

    @property
    def visible(self) -> bool:
        """Whether a bar is shown; if not, log lines instead."""
        return self._progress is not None or self._line is not None

    def __enter__(self) -> ProgressBar:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress:
            self._progress.stop()
        self._update_line(now=True)

    def update(self, completed: int, status: str, total: int | None = None, remaining: str = "") -> None:
        """Show the number of completed parts, a status text and the remaining time."""
        if self._progress:
            self._progress.update(
                self._task, completed=completed, total=total, status=status, remaining=remaining
            )
        self._completed, self._status, self._remaining = completed, status, remaining
        self._total = self.total if total is None else total
        self._update_line()

    def show(self, status: str, title: str | None = None) -> None:
        """Replace the status text, and the title if it is given."""
        if self._progress:
            self._progress.update(self._task, status=status, description=title)
        self._title, self._status = title or self._title, status
        self._update_line()

    def _update_line(self, now: bool = False) -> None:
        if self._line:
            parts = [f"{self._title} {self._completed}/{self._total}", self._status, self._remaining]
            self._line.show("  ".join(filter(None, parts)), now)

    def log(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def log_once(self, text: str) -> None:
        """Print a line unless an earlier run of the same bar has printed it."""
        if text not in self._logged_once:
            self._logged_once.add(text)
            self.log(text)


def _columns(width: int) -> list[ProgressColumn]:
    """The columns of a bar. The status takes the space that is left and is cut first."""
    spare = width - _NEEDED_WIDTH - _SMALLEST_BAR
    title = TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=2 * _TITLE_WIDTH))
    bar = BarColumn(bar_width=min(_BAR_WIDTH, max(_SMALLEST_BAR, _SMALLEST_BAR + spare - 2 * _TITLE_WIDTH)))
    remaining = TextColumn("{task.fields[remaining]}", table_column=Column(no_wrap=True))
    status = TextColumn(
        "{task.fields[status]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    return [
        *([title] if spare >= _TITLE_WIDTH else []),
        bar,
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        remaining,
        status,
    ]


class RunProgress:
    """Shows a run: last evaluation with its round, train loss, rate and remaining time."""

    def __init__(
        self, bar: ProgressBar, config: Config, metric: str, title: str = "", before: int = 0
    ) -> None:
        """`before` is the number of rounds of earlier runs that the same bar shows."""
        self._bar, self._config, self._rounds, self._before = bar, config, config.rounds, before
        self._title = title or config.algorithm
        self._metric = metric
        self._pace = Pace(config.eval.every)
        self._last_line = 0.0
        self._evaluation = ""
        bar.show("", self._title)

    def log(self, text: str) -> None:
        self._bar.log(text)

    def log_once(self, text: str) -> None:
        self._bar.log_once(text)

    def describe(self, clients: int, parameters: int) -> None:
        """Print the size of the run: "10 of 342,477 clients per round · 5.0 M parameters · 1,500 rounds"."""
        if not self._before:  # the runs of a comparison have the same size
            cohort = f"{self._config.clients_per_round:,} of {clients:,} clients per round"
            rounds = count_noun(self._rounds, "round")
            self.log(f"{cohort} · {format_count(parameters)} parameters · {rounds}")

    def show_phase(self, text: str) -> None:
        """Show a step other than a round as the status of the bar."""
        self._bar.show(text)

    def on_step(self, step: Step) -> None:
        """Show a finished round. Lines appear for evaluations, the last round and every ten seconds."""
        done, now = step.position.round, time.monotonic()
        status, (rate, remaining) = self._status(step), self._rate_texts(done, now)
        self._bar.update(self._before + done, "  ".join(filter(None, (status, rate))), remaining=remaining)
        is_due = now - self._last_line >= _SECONDS_BETWEEN_LINES
        if not self._bar.visible and (is_due or step.evaluation or done == self._rounds):
            self._last_line = now
            parts = [f"{self._title} round {done}/{self._rounds}", status, rate, remaining]
            self._bar.log("  ".join(filter(None, parts)))

    def _status(self, step: Step) -> str:
        parts = []
        if step.evaluation:
            unit, value = metric_unit(self._metric), step.evaluation[self._metric]
            name = "test loss" if self._metric == "loss" else unit.name
            shown = unit.format(value) if isfinite(value) else "not finite"
            self._evaluation = f"{name} {shown} at round {step.position.round}"
        if self._evaluation:
            parts.append(self._evaluation)
        if step.report is not None:
            loss = step.report.loss
            parts.append("train loss not finite" if loss is None else f"train loss {loss:.4f}")
            if step.report.rejected:
                parts.append(f"{count_noun(len(step.report.rejected), 'client')} rejected")
        return "  ".join(parts)

    def _rate_texts(self, done: int, now: float) -> tuple[str, str]:
        """Rounds per second, and the remaining time of all runs of the bar."""
        rate = self._pace.update(done, now)
        if rate is None:
            return "", ""
        left = self._bar.total - self._before - done
        return f"{rate:.2f} rounds/s", f"{format_duration(left / rate)} left" if left > 0 else ""


class EvaluationProgress:
    """Shows the evaluation of clients: a bar, and an estimate of its duration after the first second."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: ProgressBar | None = None
        self._start = self._last_line = time.monotonic()
        self._is_estimated = False

    def __enter__(self) -> EvaluationProgress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.__exit__(*error)

    def update(self, done: int, total: int) -> None:
        """Show `done` of `total` clients. The first call starts the bar."""
        now = time.monotonic()
        if self._bar is None:
            self._bar = ProgressBar("clients", total, self._quiet).__enter__()
            self._start = self._last_line = now
        elapsed = now - self._start
        remaining = f"{format_duration(elapsed * (total - done) / done)} left" if 0 < done < total else ""
        self._bar.update(done, "" if done else "starting the workers", remaining=remaining)
        if not self._is_estimated and 0 < done < total and elapsed >= 1:
            self._is_estimated = True
            self._log_estimate(elapsed * total / done, total)
        elif not self._bar.visible and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._bar.log(f"{done:,} of {total:,} clients, {remaining}")

    def _log_estimate(self, seconds: float, total: int) -> None:
        assert self._bar is not None
        text = f"{total:,} clients take about {format_duration(seconds)}"
        is_long = seconds > _LONG_EVALUATION and total > _SUGGESTED_SAMPLE
        self._bar.log(text + (f"; --sample {_SUGGESTED_SAMPLE} estimates the result" if is_long else ""))
