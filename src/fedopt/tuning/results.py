"""The results of a sweep: scores and best points read from the run directories, as CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.analysis.heatmap import NearBest, count_near_best, metric_tolerance
from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.files import write_atomically
from fedopt.runs.records import RunRecord
from fedopt.tasks import find_task
from fedopt.tuning.grid import Grid, Point, edge_axes
from fedopt.tuning.request import SweepRequest
from fedopt.tuning.scores import lower_is_better, score, truncate_record
from fedopt.tuning.trials import Trial, read_trial

_STATUS_ORDER = ("diverged", "failed", "running", "pruned", "done")  # a point has the first of its seeds'


class PointResult(NamedTuple):
    """A point of the grid with its trials, one per seed, and their scores."""

    point: Point
    trials: tuple[Trial, ...]
    records: tuple[RunRecord, ...]  # of the trials that have started
    score: Interval | None  # of the selection criterion; None if a seed has no score
    value: Interval | None  # of the task's metric
    status: str
    rejected: int  # clients of all seeds whose loss or update was not finite

    @property
    def rounds(self) -> int:
        """The rounds run by all seeds together."""
        return sum(record.rounds for record in self.records)


class AlgorithmResult(NamedTuple):
    """The points of one algorithm, sorted by score with the best first."""

    algorithm: str
    grid: Grid
    points: list[PointResult]
    rounds: int  # of a complete trial

    @property
    def best(self) -> PointResult | None:
        return next((point for point in self.points if point.score is not None), None)

    @property
    def diverged(self) -> int:
        return sum(point.status == "diverged" for point in self.points)

    @property
    def with_rejections(self) -> int:
        """The number of points at which clients were rejected."""
        return sum(point.rejected > 0 for point in self.points)

    def near_best(self, request: SweepRequest) -> NearBest:
        """Count the trials that are close to the best one in terms of the compared metric."""
        metric = request.compared_metric
        ended = [point for point in self.points if point.status != "running"]
        values = [point.score if metric == request.select else point.value for point in ended]
        means = [None if value is None else value.mean for value in values]
        higher_is_better = not lower_is_better(find_task(request.task), metric)
        return count_near_best(means, higher_is_better, metric_tolerance(metric))


class SweepResult(NamedTuple):
    """The results of all algorithms of a sweep."""

    request: SweepRequest
    algorithms: list[AlgorithmResult]
    out: Path
    notes: Sequence[str] = ()  # about the grids

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    @property
    def axes(self) -> list[str]:
        """The axes of all grids."""
        return list(dict.fromkeys(axis for result in self.algorithms for axis in result.grid))

    @property
    def rounds_run(self) -> int:
        """The rounds of all trials on disk."""
        return sum(point.rounds for result in self.algorithms for point in result.points)

    @property
    def records(self) -> list[RunRecord]:
        """The records of all trials, truncated to the length of this sweep."""
        return [
            truncate_record(record, result.rounds)
            for result in self.algorithms
            for point in result.points
            for record in point.records
        ]


def read_results(
    request: SweepRequest, algorithm: str, grid: Grid, points: Sequence[Sequence[Trial]], rounds: int
) -> AlgorithmResult:
    """Read the trials of one algorithm and sort its points by score."""
    task = find_task(request.task)
    results = []
    for trials in points:
        records = tuple(record for trial in trials if (record := read_trial(trial)) is not None)
        if records:
            results.append(_point_result(request.select, task.metric, trials, records, rounds))
    sign = 1 if lower_is_better(task, request.select) else -1
    results.sort(key=lambda point: (point.score is None, sign * point.score.mean if point.score else 0.0))
    return AlgorithmResult(algorithm, grid, results, rounds)


def _point_result(
    select: str, metric: str, trials: Sequence[Trial], records: tuple[RunRecord, ...], rounds: int
) -> PointResult:
    def mean_over_seeds(name: str) -> Interval | None:
        values = [score(record, name, rounds) for record in records]
        known = [value for value in values if value is not None]
        return confidence_interval(known) if len(known) == len(trials) else None

    truncated = [truncate_record(record, rounds) for record in records]
    statuses = {record.status for record in truncated}
    status = next((status for status in _STATUS_ORDER if status in statuses), records[0].status)
    point = trials[0].point
    rejected = sum(record.rejected for record in truncated)
    return PointResult(
        point, tuple(trials), records, mean_over_seeds(select), mean_over_seeds(metric), status, rejected
    )


def write_results(result: SweepResult) -> None:
    """Write sweep.csv, with one line per point, and the report."""
    write_atomically(result.out / "sweep.csv", _to_csv(result))
    if records := result.records:
        title = f"Tuning {', '.join(result.request.algorithm_names)} on {result.request.task_name}"
        from fedopt.reporting import write_report  # imports plotly

        write_report(records, result.report, title)


def _to_csv(result: SweepResult) -> str:
    select, metric = result.request.select, find_task(result.request.task).metric
    measures = [select, metric]
    if len(result.request.seeds) > 1:
        measures = [select, f"{select}_half", metric, f"{metric}_half"]
    columns = ["algorithm", *result.axes, "seeds", "status", "rounds", "rejected", *measures, "directory"]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(columns)), lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for algorithm in result.algorithms:
        for point in algorithm.points:
            writer.writerow(
                {
                    "algorithm": algorithm.algorithm,
                    **point.point,
                    "seeds": len(point.trials),
                    "status": point.status,
                    "rounds": point.rounds // len(point.trials),
                    "rejected": point.rejected,
                    **_mean_and_half_width(metric, point.value),
                    **_mean_and_half_width(select, point.score),
                    "directory": " ".join(f"trials/{trial.path.name}" for trial in point.trials),
                }
            )
    return text.getvalue()


def _mean_and_half_width(name: str, value: Interval | None) -> dict[str, float | None]:
    """The mean over seeds and the half-width of its confidence interval, which is None for one seed."""
    return {
        name: None if value is None else value.mean,
        f"{name}_half": None if value is None else value.half_width,
    }


def summary(result: SweepResult) -> dict[str, Any]:
    """Return the JSON object of `--json`."""
    request = result.request
    return {
        "task": request.task_name,
        "data": request.data_name,
        "select": request.select,
        "metric": find_task(request.task).metric,
        "rounds_run": result.rounds_run,
        "algorithms": {a.algorithm: _algorithm_summary(a, request) for a in result.algorithms},
        "remarks": list(result.notes),
        "out": str(result.out),
        "report": str(result.report),
    }


def _algorithm_summary(result: AlgorithmResult, request: SweepRequest) -> dict[str, Any]:
    near_best = result.near_best(request)
    return {
        "rounds": result.rounds,
        "trials": len(result.points),
        "diverged": result.diverged,
        "with_rejections": result.with_rejections,
        "best": None if result.best is None else _best_summary(result.best, result.grid),
        "near_best": {
            "share": near_best.share,
            "within": near_best.within,
            "trials": near_best.total,
            "measure": request.compared_metric,
            "distance": near_best.tolerance.text,
        },
    }


def _best_summary(best: PointResult, grid: Grid) -> dict[str, Any]:
    return {
        "point": dict(best.point),
        **_mean_and_half_width("score", best.score),
        "score_n": 0 if best.score is None else best.score.n,
        **_mean_and_half_width("value", best.value),
        "value_n": 0 if best.value is None else best.value.n,
        "run": [str(trial.path) for trial in best.trials],
        "edges": edge_axes(best.point, grid),
    }
