"""The output of a sweep in the terminal: the winner, the best point of each algorithm, and notes."""

from __future__ import annotations

import shlex

from rich.text import Text

from fedopt.formatting import ABSENT, Unit, metric_unit
from fedopt.intervals import Interval
from fedopt.reports.grids import metric_tolerance
from fedopt.reports.sentences import mean_unit
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.reports.tables import Column, Table, print_sentences, wide_console
from fedopt.tuning.grid import LOG10_AXES, Value
from fedopt.tuning.results import AlgorithmResult, SweepResult


def print_sweep(result: SweepResult) -> None:
    console = wide_console()
    print_sentences(console, *result.selection(), "")
    console.print(best_points(result).fit(console.width))
    for note in notes(result):
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def best_points(result: SweepResult) -> Table:
    """Build a table with the selected point of each algorithm."""
    request, unit, algorithms = result.request, metric_unit(result.metric), result.algorithms
    data = "synthetic data" if request.data_name == "synthetic" else f"data {request.data_name}"
    rounds = " and ".join(map(str, sorted({algorithm.rounds for algorithm in algorithms})))
    best = [algorithm.best for algorithm in algorithms]
    columns = [
        Column.of(
            f"log10 {axis.replace('_', ' ')}" if axis in LOG10_AXES else axis,
            [_axis_text(point.point.get(axis) if point else None) for point in best],
        )
        for axis in result.axes
    ]
    mean, is_criterion = f"mean of {result.averaged_rounds}", request.select == result.metric
    if not is_criterion:
        score = metric_unit(request.select) if request.select == TRAIN_LOSS else mean_unit(request.select)
        columns.append(
            Column.of(score.name, [_value_text(score, p.score if p else None) for p in best], 0, mean)
        )
    ease, metric = result.ease_of_tuning(), request.compared_metric
    limit = f"within {metric_tolerance(metric).text} of the best trial of all algorithms"
    near = [_share_text(e.near_best_share) for e in ease]
    means = [_value_text(unit, p.value if p else None) for p in best]
    lasts = [_value_text(unit, p.last if p else None) for p in best]
    columns += [
        Column.of(mean_unit(result.metric).name, means, 0 if is_criterion else 1, mean),
        Column.of(unit.name, lasts, 1 if is_criterion else 0, "last evaluation"),
        Column.of("trials", [str(len(algorithm.points)) for algorithm in algorithms], 4),
        Column.of("diverged", [str(algorithm.diverged) for algorithm in algorithms], 5),
        Column.of("near best", near, 2, f"trials whose {mean_unit(metric).name} is {limit}"),
    ]
    if any(e.beats_reference is not None for e in ease):
        shares = [_share_text(e.beats_reference_share) for e in ease]
        columns.append(Column.of("beats fedavg", shares, 3, "trials better than the best of fedavg"))
    if any(algorithm.with_rejections for algorithm in algorithms):
        rejected = [str(algorithm.with_rejections) for algorithm in algorithms]
        note = "trials with clients whose loss or update was not finite; in the rounds that count, they have "
        note += "no score"
        columns.append(Column.of("clients rejected", rejected, 6, note))
    seeds = len(request.seeds)
    return Table(
        f"{request.task_name}, {rounds} rounds, {data}",
        "algorithm",
        [Text(algorithm.algorithm) for algorithm in algorithms],
        columns,
        f"±: 95 % confidence interval over {seeds} seeds." if seeds > 1 else "",
    )


def _value_text(unit: Unit, value: Interval | None) -> str:
    return ABSENT if value is None else unit.format(value.mean, value.half_width)


def _axis_text(value: Value | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _share_text(share: float | None) -> str:
    return ABSENT if share is None else f"{share * 100:.0f} %"


def notes(result: SweepResult) -> list[str]:
    """Return warnings, the files of the sweep and commands for the next step."""
    best = [] if result.best is None else [str(result.best.trials[0].path)]
    return [
        *result.notes,
        *(note for algorithm in result.algorithms for note in _algorithm_notes(algorithm)),
        f"trials: {result.out / 'sweep.csv'}",
        f"report: {result.report}",
        *(f"evaluate the best: fedopt eval {shlex.quote(path)}" for path in best),
    ]


def _algorithm_notes(result: AlgorithmResult) -> list[str]:
    notes, best = [], result.best
    if best is None:
        notes.append("no trial was completed with finite updates; try a grid with smaller rates")
    elif not all((trial.path / "checkpoints").is_dir() for trial in best.trials):
        notes.append(f"an earlier sweep removed the best model; reproduce it with: {best.trials[0].command}")
    longer = sum(record.rounds > result.rounds for point in result.points for record in point.records)
    if longer:
        notes.append(f"{longer} trials have more rounds; table and report show them after {result.rounds}")
    return [f"{result.algorithm}: {note}" for note in notes]
