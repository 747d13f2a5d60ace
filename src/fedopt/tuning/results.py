"""The results of a sweep: scores and best points, read from the run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedopt.intervals import Interval, confidence_interval
from fedopt.reports.grids import EaseOfTuning, MethodTrials, measure_ease_of_tuning, metric_tolerance
from fedopt.reports.sentences import ScoredTrial, describe_selection
from fedopt.runs.records import RunRecord, averaged_rounds
from fedopt.tasks import find_task
from fedopt.tuning.grid import Grid, Point, describe_point, edge_axes
from fedopt.tuning.request import SweepRequest
from fedopt.tuning.scores import lower_is_better, score, truncate_record
from fedopt.tuning.trials import Trial, read_trial

_UNFINISHED = ("running", "killed", "interrupted")
_STATUS_ORDER = ("diverged", "failed", *_UNFINISHED, "pruned", "done")  # a point has the first of its seeds'


class PointResult(NamedTuple):
    """A point of the grid with its trials, one per seed, and their scores."""

    point: Point
    trials: tuple[Trial, ...]
    records: tuple[RunRecord, ...]  # of the trials that have started
    score: Interval | None  # of the selection criterion; None if a seed has no score
    value: Interval | None  # of the task's metric, mean over the last 100 rounds
    last: Interval | None  # of the task's metric at the last evaluation
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
    def metric(self) -> str:
        return find_task(self.request.task).metric

    def ease_of_tuning(self) -> list[EaseOfTuning]:
        """Measure how easy each algorithm is to tune, by the compared metric."""
        request = self.request
        metric = request.compared_metric
        methods = []
        for algorithm in self.algorithms:
            ended = [point for point in algorithm.points if point.status not in _UNFINISHED]
            values = [point.score if metric == request.select else point.value for point in ended]
            means = [None if value is None else value.mean for value in values]
            methods.append(MethodTrials(algorithm.algorithm, algorithm.algorithm, means))
        higher_is_better = not lower_is_better(find_task(request.task), metric)
        return measure_ease_of_tuning(methods, higher_is_better, metric_tolerance(metric))

    @property
    def best(self) -> PointResult | None:
        """The point with the best score of all algorithms. `selection` describes it."""
        points = [(a.best.score.mean, a.best) for a in self.algorithms if a.best and a.best.score]
        sign = 1 if lower_is_better(find_task(self.request.task), self.request.select) else -1
        return min(points, key=lambda pair: sign * pair[0], default=(None, None))[1]

    @property
    def averaged_rounds(self) -> str:
        """The rounds over which the scores are means, for example "last 100 rounds"."""
        return averaged_rounds({algorithm.rounds for algorithm in self.algorithms})

    def selection(self) -> list[str]:
        """Describe the winner by the requested rule, the best metric value and the edge of the grid."""
        task = find_task(self.request.task)
        trials = [
            scored for a in self.algorithms for point in a.points if (scored := _scored_trial(a, point))
        ]
        select_higher = not lower_is_better(task, self.request.select)
        return describe_selection(
            trials, self.request.select, task.metric, select_higher, task.better == "higher"
        )

    @property
    def records(self) -> list[RunRecord]:
        """The records of all trials, truncated to the length of this sweep."""
        return [
            truncate_record(record, result.rounds)
            for result in self.algorithms
            for point in result.points
            for record in point.records
        ]


def _scored_trial(result: AlgorithmResult, point: PointResult) -> ScoredTrial | None:
    if point.score is None:
        return None
    rounds = min(result.rounds, max(record.rounds for record in point.records))
    return ScoredTrial(
        result.algorithm,
        describe_point(point.point),
        point.score,
        point.value,
        point.last,
        rounds,
        edge_axes(point.point, result.grid),
    )


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
    def mean_over_seeds(values: list[float | None]) -> Interval | None:
        known = [value for value in values if value is not None]
        return confidence_interval(known) if len(known) == len(trials) else None

    truncated = [truncate_record(record, rounds) for record in records]
    value = mean_over_seeds([score(record, metric, rounds) for record in records])
    last = mean_over_seeds([record.last_evaluation.value for record in truncated])
    statuses = {record.status for record in truncated}
    status = next((status for status in _STATUS_ORDER if status in statuses), records[0].status)
    return PointResult(
        point=trials[0].point,
        trials=tuple(trials),
        records=records,
        score=mean_over_seeds([score(record, select, rounds) for record in records]),
        value=value,
        last=None if value is None else last,
        status=status,
        rejected=sum(record.rejected for record in truncated),
    )
