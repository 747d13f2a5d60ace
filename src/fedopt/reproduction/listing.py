"""`fedopt reproduce list`: the artifacts, their runs, and how long they take here at each scale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedopt.engine.executors import available_cores
from fedopt.formatting import format_duration
from fedopt.reproduction.artifacts import ARTIFACTS, GROUPS, Artifact
from fedopt.reproduction.cost import Speed, calibrate, total_seconds, trial_bytes
from fedopt.reproduction.published import DATASET_OF, DATASETS, METHOD_NAMES, METHODS, TASK_NAMES
from fedopt.reproduction.scales import SCALES, Scale
from fedopt.reproduction.sources import SYNTHETIC, Source
from fedopt.reproduction.study import Spec, Study

_ROOMY = 120  # columns of a terminal that has room for titles


def estimates(console: Console, workers: int | None = None) -> dict[str, Any]:
    """Runs and seconds of every artifact at every scale, from a calibration of some seconds."""
    with console.status("timing a step of each task") as status:
        speeds = calibrate(TASK_NAMES, lambda task: status.update(f"timing a step of {task}"))
    side_by_side = workers or available_cores()
    rows = []
    for artifact in ARTIFACTS.values():
        scales = {s.name: _cost(_specs(artifact, s), speeds, side_by_side) for s in SCALES.values()}
        rows.append({"name": artifact.name, "title": artifact.title, "where": artifact.where, **scales})
    everything = {}
    for scale in SCALES.values():
        union = dict.fromkeys(spec for artifact in ARTIFACTS.values() for spec in _specs(artifact, scale))
        everything[scale.name] = _cost(tuple(union), speeds, side_by_side)
    return {
        "cores": side_by_side,
        "artifacts": rows,
        "all": everything,
        "largest_trial": {scale.name: _largest(scale, speeds) for scale in SCALES.values()},
        "seconds": {task: speed._asdict() for task, speed in speeds.items()},
    }


def _specs(artifact: Artifact, scale: Scale) -> tuple[Spec, ...]:
    return artifact.specs(_study(scale))


def _study(scale: Scale) -> Study:
    sources = {name: Source(name, SYNTHETIC, SYNTHETIC) for name in set(DATASET_OF.values())}
    return Study(scale, Path(), sources, tuple(TASK_NAMES))


def _largest(scale: Scale, speeds: Mapping[str, Speed]) -> dict[str, Any]:
    """The trial that needs the most disk."""
    study = _study(scale)

    def needed(task: str, method: str) -> float:
        config = study.trial(study.sweep(task, method)[0]).config
        return trial_bytes(config, speeds[task].parameters, DATASETS[DATASET_OF[task]].train_clients)

    size, task, method = max((needed(t, m), t, m) for t in TASK_NAMES for m in METHODS)
    return {"task": task, "algorithm": method, "bytes": round(size)}


def _cost(specs: tuple[Spec, ...], speeds: dict[str, Speed], workers: int) -> dict[str, float]:
    return {"runs": len(specs), "seconds": round(total_seconds(specs, speeds, workers), 1)}


def print_list(found: dict[str, Any], console: Console) -> None:
    """The estimates as a table, smallest scale first."""
    scales = list(SCALES)[::-1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("artifact", no_wrap=True)
    roomy = console.width >= _ROOMY
    if roomy:
        table.add_column("what it is")
    for scale in scales:
        table.add_column(f"{scale}\nruns, time", justify="right", no_wrap=True)
    last = {"name": "all", "title": "everything, shared runs once", **found["all"]}
    for row in [*found["artifacts"], last]:
        cells = [f"{row[scale]['runs']:,}  {_time(row[scale])}" for scale in scales]
        table.add_row(row["name"], *([row["title"]] if roomy else []), *cells)
    console.print(table)
    groups = ", ".join(name for name in GROUPS if name != "all")
    for scale in scales:
        console.print(f"{scale}: {SCALES[scale].what}", highlight=False)
    sizes = [f"{_disk(found['largest_trial'][scale])} at {scale}" for scale in scales]
    console.print(
        f"Disk of the largest trial: {'; '.join(sizes)}. A sweep's trial gives it back when it is over; one "
        "for which there is no room is left blank.",
        highlight=False,
    )
    console.print(
        f"Times are estimates for {found['cores']} cores from a step of each task timed just now; runs that "
        f"are there already take none. Artifacts share runs. Groups: {groups}, all.",
        highlight=False,
    )


def _disk(largest: Mapping[str, Any]) -> str:
    method, task = METHOD_NAMES[largest["algorithm"]], TASK_NAMES[largest["task"]]
    return f"{largest['bytes'] / 1e9:,.1f} GB ({method}, {task})"


def _time(cost: dict[str, float]) -> str:
    return format_duration(cost["seconds"]) if cost["runs"] else "at once"
