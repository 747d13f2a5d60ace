"""`fedopt reproduce`: plan the runs of what is asked for, run those that are missing, draw, write the page.

What is on disk counts: finished and diverged runs are not run again, so the same command continues after a
kill.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.engine.executors import available_cores
from fedopt.errors import FedoptError, RunError, UserError
from fedopt.files import disk_errors, lock_directory, write_atomically
from fedopt.formatting import format_duration
from fedopt.reproduction import page
from fedopt.reproduction.artifacts import Artifact, chosen, read_tasks
from fedopt.reproduction.cost import calibrate, total_seconds
from fedopt.reproduction.disk_check import keeps_rows, workers_with_room
from fedopt.reproduction.figures import render
from fedopt.reproduction.published import DATASET_OF, OPTIMIZERS
from fedopt.reproduction.scales import Scale
from fedopt.reproduction.sources import explain, find_sources
from fedopt.reproduction.study import Spec, Study
from fedopt.reproduction.tables import to_csv, to_markdown
from fedopt.sweep.pool import run_trials
from fedopt.sweep.trials import Trial, is_over

Say = Callable[[str], None]
_ASKED = "reproduction.json"  # what a directory holds: scale and variant


@dataclass(frozen=True)
class Request:
    """What is to be made again."""

    artifact: str
    scale: Scale
    out: Path
    data: str | None = None
    tasks: str | None = None
    workers: int | None = None
    variant: str = "as_run"
    seeds: tuple[int, ...] = (0,)

    def command(self, artifact: str) -> str:
        """The command that makes one artifact again, in the same place."""
        words = ["fedopt", "reproduce", artifact, "--scale", self.scale.name]
        words += ["--data", self.data] if self.data else []
        words += ["--tasks", self.tasks] if self.tasks else []
        words += ["--variant", self.variant] if self.variant != "as_run" else []
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds != (0,) else []
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
    sources = find_sources(needed, request.data)
    study = Study(request.scale, request.out, sources, tuple(needed), request.variant, request.seeds)
    plans = {artifact: artifact.specs(study) for artifact in artifacts}
    union = list(dict.fromkeys(spec for specs in plans.values() for spec in specs))
    made: dict[Artifact, Made] = {}

    def draw(ready: Sequence[Artifact]) -> None:
        study.forget()
        for artifact in ready:
            say(f"drawing {artifact.name}")
            made[artifact] = _draw(study, artifact, plans[artifact], request)
        write_atomically(request.out / "index.html", page.index(request.out, request.scale, request.variant))

    lock = _claim(request)
    done: set[str] = set()
    try:
        _tell_length(study, union, request, say)
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
    finally:
        os.close(lock)
    return [made[artifact] for artifact in artifacts]


def _claim(request: Request) -> int:
    """Make the directory one of this scale and variant, and lock it; nothing of somebody else's is touched.

    Numbers of another scale or variant would stand on the same page.
    """
    file, asked = request.out / _ASKED, {"scale": request.scale.name, "variant": request.variant}
    if file.is_file():
        try:
            there = {key: str(json.loads(file.read_bytes())[key]) for key in asked}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file} is damaged ({error}); restore it or choose another --out") from error
        if there["scale"] != asked["scale"]:
            held = f"at scale {there['scale']}"
        elif there["variant"] != asked["variant"]:
            held = f"with variant {there['variant']}"
        else:
            return lock_directory(request.out, "reproduction")
        raise UserError(f"{request.out} holds a reproduction {held}; choose another --out")
    if request.out.exists() and not request.out.is_dir():
        raise UserError(f"{request.out} is a file, and a reproduction is a directory; choose another --out")
    if request.out.is_dir():
        names = [entry.name for entry in request.out.iterdir()]
        others = sorted(name for name in names if name != "runs" and not name.startswith("."))
        if others:
            found = f"{request.out} is not empty and not a reproduction (it has {others[0]!r})"
            raise UserError(f"{found}; choose another --out")
    lock = lock_directory(request.out, "reproduction")
    write_atomically(file, json.dumps(asked, indent=2) + "\n")
    return lock


def _tell_length(study: Study, specs: Sequence[Spec], request: Request, say: Say) -> None:
    """Before work at the paper's own scale, which takes days: how long it will take here."""
    if request.scale.rounds is not None:
        return
    waiting = [spec for spec in specs if not _is_over(study, spec)]
    if waiting:
        speeds = calibrate(dict.fromkeys(spec.task for spec in waiting))
        seconds = total_seconds(waiting, speeds, request.workers or available_cores())
        say(
            f"about {format_duration(seconds)} on this machine for {len(waiting):,} runs; "
            "`--scale small` is shorter"
        )


def _run(study: Study, specs: Sequence[Spec], task: str, request: Request, say: Say) -> None:
    """Run those of one task that are not over, and give back the disk of each as it ends."""
    dropped = {study.trial(spec).path for spec in set(specs) - _kept(study)}

    def give_back(trial: Trial) -> None:
        if trial.path in dropped:
            remove_checkpoints(trial)

    waiting = []
    for spec in specs:
        if not _is_over(study, spec):
            waiting.append(spec)
        elif spec in study.damaged:
            say(f"left out: {study.damaged[spec]}; remove {study.trial(spec).path} to have it run again")
        else:  # what a kill has left
            give_back(study.trial(spec))
    if waiting:
        say(f"{task}: {len(waiting)} of {len(specs)} runs to do, data {study.source(task).directory}")
    light = [spec for spec in waiting if not keeps_rows(spec)]
    try:
        if light:
            run_trials([study.trial(spec) for spec in light], request.workers, task, give_back)
        heavy = [spec for spec in waiting if keeps_rows(spec)]
        if heavy:
            _run_where_there_is_room(study, heavy, task, request, say, give_back)
    finally:
        study.forget()


def _run_where_there_is_room(
    study: Study,
    specs: Sequence[Spec],
    task: str,
    request: Request,
    say: Say,
    after: Callable[[Trial], None],
) -> None:
    """Run trials whose clients keep rows, as many side by side as the disk holds."""
    fits = workers_with_room(study, specs[0])
    if isinstance(fits, RunError):
        say(f"left out: {len(specs)} runs of {task} {specs[0].algorithm}: {fits}")
        study.no_room.update(specs)
        return
    workers = max(1, min(fits, request.workers or available_cores()))
    run_trials([study.trial(spec) for spec in specs], workers, f"{task} {specs[0].algorithm}", after)


def _is_over(study: Study, spec: Spec) -> bool:
    """Whether nothing is left to do for a run: it is done, diverged, or damaged."""
    record = study.record(spec)
    return spec in study.damaged if record is None else is_over(record, study.rounds(spec))


def _kept(study: Study) -> set[Spec]:
    """The runs whose models stay: those at the paper's rates, where the scale keeps them."""
    if not study.scale.keep_checkpoints:
        return set()
    return {spec for task in study.tasks for method in OPTIMIZERS for spec in study.repeats(task, method)}


def remove_checkpoints(trial: Trial) -> None:
    """Of a trial that is over: its numbers stay, and its model and its clients' rows go."""
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
    text = f"## {artifact.title}\n\n{artifact.where}. "
    text += f"Scale {request.scale.name}, variant {request.variant}.\n\n"
    text += f"{to_markdown(drawn.tables, directory)}\n{said}\n\nAgain: `{command}`\n"
    write_atomically(directory / "table.md", text)
    section = page.section(artifact, drawn, picture.inline, request.scale, words, command, request.out)
    write_atomically(directory / page.SECTION, section)
    records = study.records(specs)
    counts = [sum(r.status == state for r in records) for state in ("done", "diverged")]
    return Made(artifact.name, directory, len(specs), *counts)
