"""`fedopt reproduce`: plan the runs of what is asked for, run those that are missing, draw, write the page.

What is on disk counts: finished and diverged runs are not run again, so the same command continues after a
kill.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.errors import FedoptError
from fedopt.experiments.paper import page
from fedopt.experiments.paper.artifacts import Artifact, chosen, read_tasks
from fedopt.experiments.paper.figures import render
from fedopt.experiments.paper.published import DATASET_OF, OPTIMIZERS
from fedopt.experiments.paper.scales import Scale
from fedopt.experiments.paper.sources import explain, find_sources
from fedopt.experiments.paper.study import Spec, Study
from fedopt.experiments.paper.tables import to_csv, to_markdown
from fedopt.experiments.sweep.pool import run_trials
from fedopt.experiments.sweep.trials import is_over
from fedopt.files import disk_errors, write_atomically

Say = Callable[[str], None]
_AT_ONCE = 32  # runs whose checkpoints may lie on the disk together: 4 GB of FedAdam's on CIFAR-100


@dataclass(frozen=True)
class Request:
    """What is to be made again."""

    artifact: str
    scale: Scale
    out: Path
    data: str | None = None
    tasks: str | None = None
    workers: int | None = None

    def command(self, artifact: str) -> str:
        """The command that makes one artifact again, in the same place."""
        words = ["fedopt", "reproduce", artifact, "--scale", self.scale.name]
        words += ["--data", self.data] if self.data else []
        words += ["--tasks", self.tasks] if self.tasks else []
        return shlex.join([*words, "--out", str(self.out)])


class Made(NamedTuple):
    """An artifact as it was drawn."""

    name: str
    directory: Path
    runs: int
    done: int
    diverged: int

    def summary(self) -> dict[str, Any]:
        return {**self._asdict(), "directory": str(self.directory)}


def reproduce(request: Request, say: Say = lambda text: None) -> list[Made]:
    """Run what is missing and write everything; what ran before an error is drawn before it is raised."""
    tasks = read_tasks(request.tasks)
    artifacts = chosen(request.artifact, tasks)
    needed = [task for task in tasks if any(task in artifact.tasks for artifact in artifacts)]
    study = Study(request.scale, request.out, find_sources(needed, request.data), tuple(needed))
    plans = {artifact: artifact.specs(study) for artifact in artifacts}
    union = list(dict.fromkeys(spec for specs in plans.values() for spec in specs))
    made: dict[Artifact, Made] = {}

    def draw(ready: Sequence[Artifact]) -> None:
        study.forget()
        for artifact in ready:
            say(f"drawing {artifact.name}")
            made[artifact] = _draw(study, artifact, plans[artifact], request)
        write_atomically(request.out / "index.html", page.index(request.out, request.scale))

    with disk_errors(request.out):
        request.out.mkdir(parents=True, exist_ok=True)
    done: set[str] = set()
    try:
        for task in (None, *needed):  # what needs no runs comes first
            if task is not None:
                _run(study, [spec for spec in union if spec.task == task], task, request, say)
                done.add(task)
            ready = [a for a in artifacts if a not in made and {spec.task for spec in plans[a]} <= done]
            if ready:
                draw(ready)
    except FedoptError:
        draw([artifact for artifact in artifacts if artifact not in made])
        raise
    return [made[artifact] for artifact in artifacts]


def _run(study: Study, specs: Sequence[Spec], task: str, request: Request, say: Say) -> None:
    """Run those of one task that are not over."""
    waiting = [spec for spec in specs if not _is_over(study, spec)]
    for spec in specs:
        if spec in study.damaged:
            say(f"left out: {study.damaged[spec]}; remove {study.trial(spec).path} to have it run again")
    if waiting:
        say(f"{task}: {len(waiting)} of {len(specs)} runs to do, data {study.source(task).directory}")
    for start in range(0, len(waiting), _AT_ONCE):
        part = waiting[start : start + _AT_ONCE]
        title = task if len(waiting) <= _AT_ONCE else f"{task} {start + 1}-{start + len(part)}/{len(waiting)}"
        try:
            run_trials([study.trial(spec) for spec in part], request.workers, title)
        finally:
            study.forget()
            remove_checkpoints(study, part)


def _is_over(study: Study, spec: Spec) -> bool:
    """Whether nothing is left to do for a run: it is done, diverged, or damaged."""
    record = study.record(spec)
    return spec in study.damaged if record is None else is_over(record, study.rounds(spec))


def remove_checkpoints(study: Study, specs: Sequence[Spec]) -> None:
    """Of the trials of sweeps that are over: their numbers stay, and their models would fill the disk."""
    kept = set()
    if study.scale.keep_checkpoints:
        kept = {study.published(task, method) for task in study.tasks for method in OPTIMIZERS}
    for spec in specs:
        if _is_over(study, spec) and spec not in study.damaged and spec not in kept:
            for part in ("checkpoints", "clients"):
                shutil.rmtree(study.trial(spec).path / part, ignore_errors=True)


def _draw(study: Study, artifact: Artifact, specs: Sequence[Spec], request: Request) -> Made:
    """Write the files of one artifact, each whole or not at all."""
    directory = request.out / artifact.name
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    drawn = artifact.drawn(study)
    datasets = dict.fromkeys(DATASET_OF[task] for task in artifact.tasks_of(study))
    words = [study.sources[name].word for name in datasets]
    command = request.command(artifact.name)
    picture = render(drawn.figure, artifact.name, page.figure_label(artifact, words))
    write_atomically(directory / "figure.svg", picture.svg)
    write_atomically(directory / "figure.png", picture.png)
    write_atomically(directory / "numbers.csv", to_csv(drawn.tables, directory))
    said = "\n".join(f"- {text}" for text in (*drawn.notes, *explain(words), *request.scale.said))
    text = f"## {artifact.title}\n\n{artifact.where}. Scale {request.scale.name}.\n\n"
    text += f"{to_markdown(drawn.tables, directory)}\n{said}\n\nAgain: `{command}`\n"
    write_atomically(directory / "table.md", text)
    section = page.section(artifact, drawn, picture.inline, request.scale, words, command, request.out)
    write_atomically(directory / page.SECTION, section)
    records = study.records(specs)
    counts = [sum(r.status == state for r in records) for state in ("done", "diverged")]
    return Made(artifact.name, directory, len(specs), *counts)
