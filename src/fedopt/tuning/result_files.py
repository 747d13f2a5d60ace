"""Write the results of a sweep: sweep.csv, the report and the object of `--json`."""

from __future__ import annotations

import csv
import io
from typing import Any

from fedopt.files import write_atomically
from fedopt.intervals import Interval
from fedopt.reports.grids import EaseOfTuning, metric_tolerance
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.tuning.grid import Grid, edge_axes
from fedopt.tuning.results import AlgorithmResult, PointResult, SweepResult


def write_results(result: SweepResult) -> None:
    """Write sweep.csv, with one line per point, and the report."""
    write_atomically(result.out / "sweep.csv", _to_csv(result))
    if records := result.records:
        title = f"Tuning {', '.join(result.request.algorithm_names)} on {result.request.task_name}"
        from fedopt.reports.page import write_report  # imports Jinja2

        write_report(records, result.report, title)


def _to_csv(result: SweepResult) -> str:
    """One line per point. A metric is the last evaluation; `_mean` is that of the last 100 rounds."""
    select, metric = result.request.select, result.metric
    score = select if select == TRAIN_LOSS else f"{select}_mean"
    measures = [score, metric, f"{metric}_mean"]
    if len(result.request.seeds) > 1:
        measures = [name for measure in measures for name in (measure, f"{measure}_half")]
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
                    **_mean_and_half_width(metric, point.last),
                    **_mean_and_half_width(f"{metric}_mean", point.value),
                    **_mean_and_half_width(score, point.score),
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
    request, ease = result.request, result.ease_of_tuning()
    pairs = zip(result.algorithms, ease, strict=True)
    return {
        "task": request.task_name,
        "data": request.data_name,
        "select": request.select,
        "metric": result.metric,
        "selection": result.selection(),
        "rounds_run": result.rounds_run,
        "algorithms": {a.algorithm: _algorithm_summary(a, e, request.compared_metric) for a, e in pairs},
        "remarks": list(result.notes),
        "out": str(result.out),
        "report": str(result.report),
    }


def _algorithm_summary(result: AlgorithmResult, ease: EaseOfTuning, metric: str) -> dict[str, Any]:
    return {
        "rounds": result.rounds,
        "trials": len(result.points),
        "diverged": result.diverged,
        "with_rejections": result.with_rejections,
        "best": None if result.best is None else _best_summary(result.best, result.grid),
        "ease_of_tuning": {
            "measure": metric,
            "trials": ease.total,
            "near_best": ease.near_best,
            "distance": metric_tolerance(metric).text,
            "beats_fedavg": ease.beats_reference,
            "sorted_values": list(ease.sorted_values),
        },
    }


def _best_summary(best: PointResult, grid: Grid) -> dict[str, Any]:
    return {
        "point": dict(best.point),
        **_mean_and_half_width("score", best.score),
        "score_n": 0 if best.score is None else best.score.n,
        **_mean_and_half_width("value", best.value),
        "value_n": 0 if best.value is None else best.value.n,
        **_mean_and_half_width("last", best.last),
        "run": [str(trial.path) for trial in best.trials],
        "edges": edge_axes(best.point, grid),
    }
