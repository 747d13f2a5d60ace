"""What a sweep came to, read from its run directories: winners, tables, files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from fedopt.analysis.heatmap import NearBest, count_near_best, metric_tolerance
from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.display.table import wide_console
from fedopt.files import write_atomically
from fedopt.formatting import Unit, metric_unit
from fedopt.report import write_report
from fedopt.runs.records import RunRecord
from fedopt.sweep.grid import LOG10_AXES, Grid, Point, Value, describe, edges
from fedopt.sweep.trials import TRAIN_LOSS, Trial, lower_is_better, recorded, score, shortened
from fedopt.tasks import find_task

_STATES = ("diverged", "failed", "running", "pruned", "done")  # of several seeds the first found counts


class Asked(NamedTuple):
    """A sweep as the user asked for it."""

    task: str
    algorithms: Sequence[str]
    grid: str = "paper"
    settings: Mapping[str, Any] = {}
    seeds: Sequence[int] = (0,)
    data: str = "synthetic"
    select: str = TRAIN_LOSS
    search: str = "grid"
    trials: int | None = None  # that a search by optuna may run
    keep: str = "best"
    tensorboard: bool = False

    @property
    def compared(self) -> str:
        """What maps show and trials come near the best by: what is selected by, if it is a metric.

        Beside a selection by train loss it is the task's metric, as in the paper's figures.
        """
        return find_task(self.task).metric if self.select == TRAIN_LOSS else self.select


class Candidate(NamedTuple):
    """A point of the grid with its trials, one per seed, and what they came to."""

    point: Point
    trials: tuple[Trial, ...]
    records: tuple[RunRecord, ...]  # of the trials that have begun
    score: Interval | None  # over seeds, of what is selected by; None if a seed has none
    value: Interval | None  # over seeds, of the task's metric
    status: str

    @property
    def rounds(self) -> int:
        """That were run, all seeds together."""
        return sum(record.rounds for record in self.records)


class Tuned(NamedTuple):
    """One algorithm's part of a sweep, best candidate first."""

    algorithm: str
    grid: Grid
    candidates: list[Candidate]
    rounds: int  # of a full trial

    @property
    def best(self) -> Candidate | None:
        return next((c for c in self.candidates if c.score is not None), None)

    @property
    def diverged(self) -> int:
        return sum(c.status == "diverged" for c in self.candidates)

    def ease(self, asked: Asked) -> NearBest:
        """How easy it is to tune: the share of the trials that come near the best by `asked.compared`."""
        task, name = find_task(asked.task), asked.compared
        ended = [c for c in self.candidates if c.status != "running"]
        found = [c.score if name == asked.select else c.value for c in ended]
        means = [None if one is None else one.mean for one in found]
        return count_near_best(means, not lower_is_better(task, name), metric_tolerance(name))


class Swept(NamedTuple):
    """What a sweep came to."""

    asked: Asked
    tuned: list[Tuned]
    out: Path
    remarks: Sequence[str] = ()  # on how the grids were read

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    @property
    def rounds_run(self) -> int:
        """The work that the trials on disk took."""
        return sum(candidate.rounds for part in self.tuned for candidate in part.candidates)

    @property
    def records(self) -> list[RunRecord]:
        """The trials as runs of this sweep's length, also those that were run further."""
        return [
            shortened(record, part.rounds)
            for part in self.tuned
            for c in part.candidates
            for record in c.records
        ]


def tuned_of(asked: Asked, algorithm: str, grid: Grid, plan: list[list[Trial]], rounds: int) -> Tuned:
    """The candidates of one algorithm as they are on disk, best first."""
    task = find_task(asked.task)
    found = []
    for trials in plan:
        records = tuple(record for t in trials if (record := recorded(t)) is not None)
        if records:
            found.append(_candidate(asked, trials, records, task.metric, rounds))
    sign = 1 if lower_is_better(task, asked.select) else -1
    found.sort(key=lambda c: (c.score is None, 0.0 if c.score is None else sign * c.score.mean))
    return Tuned(algorithm, grid, found, rounds)


def _candidate(
    asked: Asked, trials: Sequence[Trial], records: tuple[RunRecord, ...], metric: str, rounds: int
) -> Candidate:
    def over_seeds(select: str) -> Interval | None:
        values = [score(record, select, rounds) for record in records]
        known = [value for value in values if value is not None]
        return confidence_interval(known) if len(known) == len(trials) else None

    states = {shortened(record, rounds).status for record in records}
    status = next((state for state in _STATES if state in states), records[0].status)
    point = trials[0].point
    return Candidate(point, tuple(trials), records, over_seeds(asked.select), over_seeds(metric), status)


def write_results(swept: Swept) -> None:
    """The trials as a table of numbers, and the page."""
    axes = list(dict.fromkeys(axis for part in swept.tuned for axis in part.grid))
    task = find_task(swept.asked.task)
    text = io.StringIO()
    several = len(swept.asked.seeds) > 1  # then "seeds" is what means and intervals are over
    measures = [
        name
        for measure in (swept.asked.select, task.metric)
        for name in ([measure, f"{measure}_half"] if several else [measure])
    ]
    names = ["algorithm", *axes, "seeds", "status", "rounds", *measures, "directory"]
    writer = csv.DictWriter(text, list(dict.fromkeys(names)), lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for part in swept.tuned:
        for c in part.candidates:
            writer.writerow(
                {
                    "algorithm": part.algorithm,
                    **c.point,
                    "seeds": len(c.trials),
                    "status": c.status,
                    "rounds": c.rounds // len(c.trials),
                    **_spread(task.metric, c.value),
                    **_spread(swept.asked.select, c.score),
                    "directory": " ".join(f"trials/{t.path.name}" for t in c.trials),
                }
            )
    write_atomically(swept.out / "sweep.csv", text.getvalue())
    if swept.records:
        title = f"Tuning {', '.join(swept.asked.algorithms)} on {swept.asked.task}"
        write_report(swept.records, swept.report, title)


def _spread(name: str, value: Interval | None) -> dict[str, float | None]:
    """A mean under its name, and half its 95 % interval; nothing is known of the spread of one seed."""
    return {
        name: None if value is None else value.mean,
        f"{name}_half": None if value is None else value.half_width,
    }


def summary(swept: Swept) -> dict[str, Any]:
    """The JSON object of `--json`."""
    task = find_task(swept.asked.task)
    return {
        "task": swept.asked.task,
        "data": swept.asked.data,
        "select": swept.asked.select,
        "metric": task.metric,
        "rounds_run": swept.rounds_run,
        "algorithms": {part.algorithm: _part_summary(part, swept.asked) for part in swept.tuned},
        "remarks": list(swept.remarks),
        "out": str(swept.out),
        "report": str(swept.report),
    }


def _part_summary(part: Tuned, asked: Asked) -> dict[str, Any]:
    best = part.best
    winner = None
    if best is not None:
        winner = {
            "point": dict(best.point),
            **_spread("score", best.score),
            "score_n": 0 if best.score is None else best.score.n,
            **_spread("value", best.value),
            "value_n": 0 if best.value is None else best.value.n,
            "run": [str(t.path) for t in best.trials],
            "edges": edges(best.point, part.grid),
        }
    counts = {"rounds": part.rounds, "trials": len(part.candidates), "diverged": part.diverged}
    ease = part.ease(asked)
    near = {
        "share": ease.share,
        "within": ease.within,
        "trials": ease.total,
        "measure": asked.compared,
        "distance": ease.tolerance.text,
    }
    return {**counts, "best": winner, "near_best": near}


def print_sweep(swept: Swept) -> None:
    """The winners as a table, and what to do next."""
    task = find_task(swept.asked.task)
    unit, select = metric_unit(task.metric), swept.asked.select
    data = "synthetic data" if swept.asked.data == "synthetic" else f"data {swept.asked.data}"
    lengths = " and ".join(map(str, sorted({part.rounds for part in swept.tuned})))
    table = Table(
        title=f"{task.name}, {lengths} rounds, {data}; best by {select.replace('_', ' ')}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    axes = list(dict.fromkeys(axis for part in swept.tuned for axis in part.grid))
    table.add_column("algorithm", no_wrap=True)
    names = [f"log10 {axis.replace('_', ' ')}" if axis in LOG10_AXES else axis for axis in axes]
    shown = [select.replace("_", " "), unit.name] if select != task.metric else [unit.name]
    for name in (*names, *shown, "trials", "diverged", "near best"):
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)  # fits 80 columns
    for part in swept.tuned:
        best = part.best
        point = {} if best is None else best.point
        values = [_text(metric_unit(select), best.score if best else None)] if len(shown) == 2 else []
        values.append(_text(unit, best.value if best else None))
        counts = [str(len(part.candidates)), str(part.diverged), _share(part.ease(swept.asked))]
        table.add_row(part.algorithm, *(_setting(point.get(axis)) for axis in axes), *values, *counts)
    console = wide_console()
    console.print(table)
    for line in _remarks(swept):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _text(unit: Unit, value: Interval | None) -> str:
    return "-" if value is None else unit.format(value.mean, value.half_width)


def _setting(value: Value | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _share(ease: NearBest) -> str:
    return "-" if ease.share is None else f"{ease.share * 100:.0f} %"


def _remarks(swept: Swept) -> list[str]:
    bests = [(part, part.best) for part in swept.tuned]
    at_edge = [
        f"{part.algorithm} ({describe({axis: best.point[axis] for axis in axes})})"
        for part, best in bests
        if best is not None and (axes := edges(best.point, part.grid))
    ]
    name = swept.asked.compared
    lines = [
        f"near best: the share of a method's trials whose {metric_unit(name).name} is within "
        f"{metric_tolerance(name).text} of its best",
        *swept.remarks,
    ]
    if len(swept.asked.seeds) > 1:
        lines.append(f"means over {len(swept.asked.seeds)} seeds with their 95 % intervals")
    if at_edge:
        lines.append(f"at the edge of the grid, so a wider one may hold a better: {'; '.join(at_edge)}")
    for part, best in bests:
        if best is None:
            lines.append(f"{part.algorithm}: no trial came to an end; try a grid with smaller rates")
        elif not all((t.path / "checkpoints").is_dir() for t in best.trials):
            lines.append(
                f"{part.algorithm}: an earlier sweep dropped the best model; {best.trials[0].command} makes "
                "it again"
            )
        further = sum(record.rounds > part.rounds for c in part.candidates for record in c.records)
        if further:
            lines.append(
                f"{part.algorithm}: {further} trials were run further before; table and report have "
                f"them after {part.rounds} rounds"
            )
    return [*lines, f"trials: {swept.out / 'sweep.csv'}", f"report: {swept.report}"]
