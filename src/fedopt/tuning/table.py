"""The output of a sweep in the terminal: the winner, the best point of each algorithm, and notes."""

from __future__ import annotations

import shlex

from rich.table import Table
from rich.text import Text

from fedopt.analysis.ease_of_tuning import EaseOfTuning
from fedopt.analysis.heatmap import metric_tolerance
from fedopt.analysis.run_numbers import TRAIN_LOSS
from fedopt.analysis.seeds import Interval
from fedopt.analysis.selection import mean_unit
from fedopt.display.fitting_table import PIPE_WIDTH, TextColumn, fitting_table, print_sentences, wide_console
from fedopt.formatting import ABSENT, Unit, metric_unit
from fedopt.tuning.grid import LOG10_AXES, Value
from fedopt.tuning.results import AlgorithmResult, SweepResult


def print_sweep(result: SweepResult) -> None:
    console = wide_console()
    print_sentences(console, *result.selection(), "")
    console.print(best_points(result, console.width))
    for note in notes(result):
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def best_points(result: SweepResult, width: int = PIPE_WIDTH) -> Table:
    """Build a table with the selected point of each algorithm."""
    request, unit, algorithms = result.request, metric_unit(result.metric), result.algorithms
    data = "synthetic data" if request.data_name == "synthetic" else f"data {request.data_name}"
    rounds = " and ".join(map(str, sorted({algorithm.rounds for algorithm in algorithms})))
    best = [algorithm.best for algorithm in algorithms]
    columns = [
        TextColumn(
            f"log10 {axis.replace('_', ' ')}" if axis in LOG10_AXES else axis,
            [_axis_text(point.point.get(axis) if point else None) for point in best],
        )
        for axis in result.axes
    ]
    if request.select != result.metric:
        score = metric_unit(request.select) if request.select == TRAIN_LOSS else mean_unit(request.select)
        columns.append(TextColumn(score.name, [_value_text(score, p.score if p else None) for p in best]))
    ease = result.ease_of_tuning()
    means = [_value_text(unit, p.value if p else None) for p in best]
    lasts = [_value_text(unit, p.last if p else None) for p in best]
    is_criterion = request.select == result.metric
    columns += [
        TextColumn(mean_unit(result.metric).name, means, drop_order=0 if is_criterion else 1),
        TextColumn(unit.name, lasts, drop_order=1 if is_criterion else 0),
        TextColumn("trials", [str(len(algorithm.points)) for algorithm in algorithms], drop_order=4),
        TextColumn("diverged", [str(algorithm.diverged) for algorithm in algorithms], drop_order=5),
        TextColumn("near best", [_share_text(e.near_best_share) for e in ease], drop_order=2),
    ]
    if any(e.beats_reference is not None for e in ease):
        shares = [_share_text(e.beats_reference_share) for e in ease]
        columns.append(TextColumn("beats fedavg", shares, drop_order=3))
    if any(algorithm.with_rejections for algorithm in algorithms):
        rejected = [str(algorithm.with_rejections) for algorithm in algorithms]
        columns.append(TextColumn("clients rejected", rejected, drop_order=6))
    return fitting_table(
        f"{request.task_name}, {rounds} rounds, {data}",
        "algorithm",
        [Text(algorithm.algorithm) for algorithm in algorithms],
        columns,
        width,
        _caption(result, ease),
    )


def _caption(result: SweepResult, ease: list[EaseOfTuning]) -> str:
    metric, seeds = result.request.compared_metric, len(result.request.seeds)
    unit = metric_unit(result.metric)
    parts = [
        f"{unit.name[0].upper()}{unit.name[1:]}: last evaluation.",
        f"Mean {unit.name} and train loss: mean of {result.averaged_rounds}.",
    ]
    if seeds > 1:
        parts.append(f"±: 95 % confidence interval over {seeds} seeds.")
    parts.append(
        f"Near best: trials whose {mean_unit(metric).name} is within {metric_tolerance(metric).text} of "
        "the best trial of all algorithms."
    )
    if any(e.beats_reference is not None for e in ease):
        parts.append("Beats fedavg: trials better than the best of fedavg.")
    if any(algorithm.with_rejections for algorithm in result.algorithms):
        parts.append(
            "Clients rejected: trials with clients whose loss or update was not finite; in the rounds that "
            "count, they have no score."
        )
    return " ".join(parts)


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
