"""The table of a sweep for the terminal: the best point of each algorithm, and notes."""

from __future__ import annotations

from rich import box
from rich.table import Table

from fedopt.analysis.heatmap import NearBest, metric_tolerance
from fedopt.analysis.seeds import Interval
from fedopt.display.table import wide_console
from fedopt.formatting import Unit, metric_unit
from fedopt.tasks import find_task
from fedopt.tuning.grid import LOG10_AXES, Value, describe_point, edge_axes
from fedopt.tuning.results import AlgorithmResult, SweepResult


def print_sweep(result: SweepResult) -> None:
    console = wide_console()
    console.print(best_points(result))
    for note in notes(result):
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def best_points(result: SweepResult) -> Table:
    request, metric = result.request, find_task(result.request.task).metric
    data = "synthetic data" if request.data_name == "synthetic" else f"data {request.data_name}"
    rounds = " and ".join(map(str, sorted({algorithm.rounds for algorithm in result.algorithms})))
    table = Table(
        title=f"{request.task_name}, {rounds} rounds, {data}; best by {request.select.replace('_', ' ')}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    axes = [f"log10 {axis.replace('_', ' ')}" if axis in LOG10_AXES else axis for axis in result.axes]
    shows_score = request.select != metric
    measures = [*([request.select.replace("_", " ")] if shows_score else []), metric_unit(metric).name]
    table.add_column("algorithm", no_wrap=True)
    shows_rejections = any(algorithm.with_rejections for algorithm in result.algorithms)
    rejections = ["clients rejected"] if shows_rejections else []
    for name in (*axes, *measures, "trials", "diverged", *rejections, "near best"):
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)  # to fit 80 columns
    for algorithm in result.algorithms:
        best = algorithm.best
        values = [_value_text(metric_unit(request.select), best and best.score)] if shows_score else []
        table.add_row(
            algorithm.algorithm,
            *(_axis_text(best.point.get(axis) if best else None) for axis in result.axes),
            *values,
            _value_text(metric_unit(metric), best and best.value),
            str(len(algorithm.points)),
            str(algorithm.diverged),
            *([str(algorithm.with_rejections)] if shows_rejections else []),
            _share_text(algorithm.near_best(request)),
        )
    return table


def _value_text(unit: Unit, value: Interval | None) -> str:
    return "-" if value is None else unit.format(value.mean, value.half_width)


def _axis_text(value: Value | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _share_text(near_best: NearBest) -> str:
    return "-" if near_best.share is None else f"{near_best.share * 100:.0f} %"


def notes(result: SweepResult) -> list[str]:
    """Explanations and warnings below the table."""
    metric, seeds = result.request.compared_metric, len(result.request.seeds)
    at_edge = [
        f"{algorithm.algorithm} ({describe_point({axis: best.point[axis] for axis in axes})})"
        for algorithm in result.algorithms
        if (best := algorithm.best) and (axes := edge_axes(best.point, algorithm.grid))
    ]
    has_rejections = any(algorithm.with_rejections for algorithm in result.algorithms)
    return [
        *(
            [
                "clients rejected: trials with clients whose loss or update was not finite; in the rounds "
                "that count, they have no score"
            ]
            if has_rejections
            else []
        ),
        f"near best: the share of a method's trials whose {metric_unit(metric).name} is within "
        f"{metric_tolerance(metric).text} of its best",
        *result.notes,
        *([f"means over {seeds} seeds with their 95 % intervals"] if seeds > 1 else []),
        *([f"at the edge of the grid, a wider grid may be better: {'; '.join(at_edge)}"] if at_edge else []),
        *(note for algorithm in result.algorithms for note in _algorithm_notes(algorithm)),
        f"trials: {result.out / 'sweep.csv'}",
        f"report: {result.report}",
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
