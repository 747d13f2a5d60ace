"""Results of planned runs, read from their run directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fedopt import UserError
from fedopt.reports import TRAIN_LOSS, confidence_interval
from fedopt.runs import RunRecord
from fedopt.tasks import TASKS
from fedopt.tuning import Trial, is_finished, make_trial, read_trial, score
from fedopt_paper.comparison import point_text
from fedopt_paper.plan import PlannedRun, RunPlan

DIVERGED = "diverged"  # counts as a result: the rates are too large
NO_SPACE = "not enough disk space"
TO_RUN = "to run"


class RunValue(NamedTuple):
    """The value of a run, or the reason why there is none."""

    run: PlannedRun
    value: float | None  # raw
    state: str = ""  # diverged, failed, unfinished, ...; "" with a value or before the run starts
    path: Path | None = None
    half_width: float | None = None  # of the 95 % confidence interval over several seeds
    by_seed: tuple[tuple[int, float], ...] = ()  # value of each seed, if there are several
    remark: str = ""  # such as missing seeds


@dataclass(frozen=True)
class RunReader:
    """Reads the results of planned runs under `out`, each run directory once."""

    plan: RunPlan
    out: Path
    _records: dict[PlannedRun, RunRecord | None] = field(default_factory=dict, compare=False)
    _trials: dict[PlannedRun, Trial] = field(default_factory=dict, compare=False)
    damaged: dict[PlannedRun, str] = field(default_factory=dict, compare=False)  # run -> error message
    without_space: set[PlannedRun] = field(default_factory=set, compare=False)  # too large for the disk

    def trial(self, run: PlannedRun) -> Trial:
        """Return the configuration and the directory of a run."""
        if run not in self._trials:
            root, data = runs_directory(self.out, run.task), self.plan.source(run.task).directory
            self._trials[run] = make_trial(root, run.task, run.algorithm, run.point, run.settings, data)
        return self._trials[run]

    def record(self, run: PlannedRun) -> RunRecord | None:
        """Read a run directory. The result is None if it does not exist or is damaged."""
        if run not in self._records:
            self._records[run] = None
            try:
                self._records[run] = read_trial(self.trial(run))
            except UserError as error:
                self.damaged[run] = str(error)
        return self._records[run]

    def records(self, runs: Iterable[PlannedRun]) -> list[RunRecord]:
        return [record for run in runs if (record := self.record(run)) is not None]

    def clear(self) -> None:
        """Forget what was read, because runs have continued."""
        self._records.clear()
        self.damaged.clear()

    def is_over(self, run: PlannedRun) -> bool:
        """Whether a run is done, diverged or damaged."""
        record = self.record(run)
        return run in self.damaged if record is None else is_finished(record, run.settings["rounds"])

    def value(self, run: PlannedRun, select: str = "", last: int = 0) -> RunValue:
        """Return the mean of `select`, by default the task's metric, over the `last` rounds.

        With 0, the scale determines how many rounds these are.
        """
        record = self.record(run)
        if record is None:
            return self._missing(run)
        rounds = run.settings["rounds"]
        last = last or self.plan.scale.last_rounds(rounds)
        value = score(record, select or TASKS[run.task].metric, rounds, last)
        state = NO_SPACE if run in self.without_space else _state(record)
        return RunValue(run, value, state if value is None else "", record.path)

    def test_value(self, run: PlannedRun) -> RunValue:
        """Return the metric on the full test set, or of the last evaluation if the scale omits it."""
        record, metric = self.record(run), TASKS[run.task].metric
        if record is None:
            return self._missing(run)
        value: float | None = None
        if record.status == "done":
            if run.settings["eval.final"] == "full":
                value = (record.info.get("full_test") or {}).get(metric)
            else:
                value = next(iter(record.curve("test", metric)[1][-1:]), None)
        return RunValue(run, value, _state(record) if value is None else "", record.path)

    def _missing(self, run: PlannedRun) -> RunValue:
        if run in self.without_space:
            return RunValue(run, None, NO_SPACE)
        if run in self.damaged:
            return RunValue(run, None, "damaged", self.trial(run).path)
        return RunValue(run, None)

    def best(self, runs: Sequence[PlannedRun], select: str = TRAIN_LOSS, last: int = 0) -> RunValue:
        """Select the best of `runs` by `select`. The result has the value that it was selected by.

        Without a result of every run there is no best one, because a missing run could be better. The state
        then gives the reason. Divergence counts as a result.
        """
        values = [self.value(run, select, last) for run in runs]
        missing = missing_runs(values)
        if missing is not None:
            return RunValue(runs[0], None, missing)
        task = TASKS[runs[0].task]
        lower = select != task.metric or task.better == "lower"  # a training loss, or the metric
        best = select_best(values, lower)
        return best or RunValue(runs[0], None, DIVERGED, values[0].path)

    def published(self, task: str, method: str) -> RunValue:
        """Return the mean over the seeds of the runs with the paper's rates."""
        return mean_over_seeds([self.value(run) for run in self.plan.published_per_seed(task, method)])

    def tuned(self, runs: Sequence[PlannedRun]) -> tuple[RunValue, str]:
        """Return the value of the run with the smallest training loss, and its rates as text."""
        best = self.best(runs)
        return (best, "") if best.value is None else (self.value(best.run), point_text(best.run.point))


def runs_directory(out: Path, task: str) -> Path:
    """Return the directory with the runs of a task."""
    return out / "runs" / task


def select_best(values: Sequence[RunValue], lower: bool) -> RunValue | None:
    """Return the first of the best values, or None if there are no values."""
    known = [value for value in values if value.value is not None]
    sign = 1 if lower else -1
    return min(known, key=lambda value: sign * (value.value or 0.0), default=None)


def missing_runs(values: Sequence[RunValue]) -> str | None:
    """Count the runs without a result by reason: "" if none has started, None if all have results."""
    states = [value.state for value in values if value.value is None and value.state != DIVERGED]
    if not states:
        return None
    if len(states) == len(values) and set(states) <= {"", NO_SPACE}:
        return NO_SPACE if NO_SPACE in states else ""
    counts = Counter(TO_RUN if state in ("", "unfinished") else state for state in states)
    return ", ".join(f"{count} of {len(values)} {state}" for state, count in counts.items())


def mean_over_seeds(values: Sequence[RunValue]) -> RunValue:
    """Combine one run per seed into their mean with its confidence interval. Missing seeds are noted."""
    known = [value for value in values if value.value is not None]
    if len(values) == 1 or not known:
        return values[0]
    by_seed = tuple((int(v.run.settings["seed"]), v.value) for v in known if v.value is not None)
    mean, half_width, count = confidence_interval([value for _, value in by_seed])
    missing = Counter(value.state or TO_RUN for value in values if value.value is None)
    parts = [f"{count} of {len(values)} seeds"] if missing else []
    parts += [f"{count} {state}" for state, count in missing.items()]
    return RunValue(known[0].run, mean, "", known[0].path, half_width, by_seed, ", ".join(parts))


def _state(record: RunRecord) -> str:
    return record.status if record.status in (DIVERGED, "failed") else "unfinished"
