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
from fedopt.experiments.paper.published import DATASET_OF
from fedopt.experiments.paper.scales import Scale
from fedopt.experiments.paper.sources import explain, find_sources
from fedopt.experiments.paper.study import Spec, Study
from fedopt.experiments.paper.tables import to_csv, to_markdown
from fedopt.experiments.sweep.pool import run_trials
from fedopt.experiments.sweep.trials import Trial, is_over, recorded
from fedopt.files import disk_errors, write_atomically

Say = Callable[[str], None]


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
    """Run those of one task that are not over; without checkpoints where the scale keeps none."""
    trials = list({trial.path: trial for trial in map(study.trial, specs)}.values())
    waiting = [trial for trial in trials if not _is_over(trial)]
    if waiting:
        say(f"{task}: {len(waiting)} of {len(trials)} runs to do, data {study.source(task).directory}")
        try:
            run_trials(waiting, request.workers, task)
        finally:
            if not study.scale.keep_checkpoints:
                _remove_checkpoints(waiting)


def _is_over(trial: Trial) -> bool:
    record = recorded(trial)
    return record is not None and is_over(record, trial.config.rounds)


def _remove_checkpoints(trials: Sequence[Trial]) -> None:
    """Of runs that are over: their numbers stay, and nobody goes on from three rounds."""
    for trial in filter(_is_over, trials):
        for part in ("checkpoints", "clients"):
            shutil.rmtree(trial.path / part, ignore_errors=True)


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
