"""Run directories written by hand, from which artifacts are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedopt.data.store import write_store
from fedopt.tasks import TASKS
from fedopt_paper.artifacts.cells import ArtifactContent
from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.comparison import ComparisonCell
from fedopt_paper.data_sources import DataSource, synthetic_source
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import DATASETS, TASK_NAMES
from fedopt_paper.results import RunReader
from fedopt_paper.scales import ReproductionScale

TINY = ReproductionScale(
    name="tiny",
    summary="two rounds",
    remarks=("Two rounds.",),
    rounds=2,
    cohort=2,
    steps=1,
    width=2,
    samples={"": 10},
    eval_every=1,
    eval_last_every=1,
    full_test=False,
    decay_rounds=1,
    epochs=2,
    writers=10,
    keep_checkpoints=False,
)
PAPERS_ROUNDS = replace(TINY, name="long", rounds=None)
REAL_EMNIST = {"scale": PAPERS_ROUNDS, "labels": {"emnist": ""}}  # differences from the paper need both


def make_plan(
    tasks: Sequence[str] = tuple(TASK_NAMES),
    scale: ReproductionScale = TINY,
    seeds: tuple[int, ...] = (0,),
    labels: Mapping[str, str] | None = None,
    variant: str = "as_run",
) -> RunPlan:
    """A plan on synthetic data. `labels` replace the label of datasets."""
    sources = {name: synthetic_source(name) for name in DATASETS}
    sources |= {name: DataSource(name, "synthetic", label) for name, label in (labels or {}).items()}
    return RunPlan(scale, sources, tuple(tasks), variant, seeds)


def make_reader(out: Path, *tasks: str, **options: object) -> RunReader:
    return RunReader(make_plan(tasks or tuple(TASK_NAMES), **options), out)  # type: ignore[arg-type]


def write_run(
    reader: RunReader,
    run: PlannedRun,
    value: float | None = 0.5,
    train_loss: float = 1.0,
    losses: tuple[float, float] = (2.0, 1.0),
    status: str = "done",
    full_test: float | None = None,
) -> Path:
    """Write the directory of a run: validation metric, training loss, initial and later validation loss."""
    trial, metric = reader.trial(run), TASKS[run.task].metric
    trial.path.mkdir(parents=True)
    rounds = trial.config.rounds
    lines = [{"round": 0, "split": "test", "loss": losses[0], metric: 0.01}]
    for t in range(1, rounds + 1):
        lines.append({"round": t, "split": "train", "loss": train_loss})
        lines.append({"round": t, "split": "test", "loss": losses[1], metric: value})
    (trial.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (trial.path / "config.toml").write_text(trial.config.toml())
    info = {
        "task": run.task,
        "algorithm": run.algorithm,
        "seed": 0,
        "rounds": rounds,
        "status": status,
        "data": "synthetic",
        "metric": metric,
        "better": TASKS[run.task].better,
        "command": trial.command,
        "segments": [{"after_round": 0, "fedopt": "0", "torch": "2", "cpu": "AVX2"}],
    }
    info |= {"value": value, "train_loss": train_loss} if status == "done" else {}
    info |= {"full_test": {metric: full_test}} if full_test is not None else {}
    (trial.path / "run.json").write_text(json.dumps(info))
    return trial.path


def write_runs(
    reader: RunReader, runs: Sequence[PlannedRun], value: Callable[[PlannedRun], float | None]
) -> None:
    """Write every run once. None means that the run diverged."""
    for run in runs:
        if not reader.trial(run).path.exists():
            result = value(run)
            status = "diverged" if result is None else "done"
            write_run(reader, run, result, 1 - (result or 0.0), status=status)


def content_of(name: str, reader: RunReader) -> ArtifactContent:
    return ARTIFACTS[name].content(reader)


def cells_of(name: str, reader: RunReader, table: int = 0) -> dict[str, ComparisonCell]:
    """The cells of a table by column."""
    return {cell.column: cell for cell in content_of(name, reader).tables[table].cells}


def write_images(directory: Path, name: str, labels: list[list[int]], notes: object = None) -> Path:
    """A store of clients with these labels, equal in both splits."""
    key, shape = ("image", (2, 2, 3)) if name.startswith("cifar") else ("pixels", (28, 28))

    def clients() -> list[tuple[str, dict[str, np.ndarray]]]:
        return [
            (f"c{index}", {key: np.zeros((len(own), *shape), np.uint8), "label": np.array(own)})
            for index, own in enumerate(labels)
        ]

    options = {} if notes is None else {"notes": notes}
    write_store(directory, name, [], {"train": clients(), "test": clients()}, **options)  # type: ignore[arg-type]
    return directory
