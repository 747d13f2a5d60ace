"""Event files, read by TensorBoard's own reader."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typed import fedopt as command
from typed import files_up_to, refused, small_command

import fedopt
from fedopt.engine.loop import Step
from fedopt.errors import RunError, UserError
from fedopt.runs.result import RunResult
from fedopt.tasks import TASKS

ROUNDS = 5
SWEEP = ["sweep", "--algorithm", "fedavg", "--workers", "1"]
COUNTS = "clients rejected skipped examples bytes_down bytes_up bytes_total client_lr server_lr".split()


class Plug(Exception):
    """Simulates a crash."""


def pull_after(round: int) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        if step.position.round == round:
            raise Plug

    return watch


def train(out: Path | None, rounds: int = ROUNDS, tensorboard: bool = True, **options: Any) -> RunResult:
    settings = {"rounds": rounds, "eval.every": 2, "checkpoint.every": 2}
    return small.run(settings=settings, out=out, tensorboard=tensorboard, **options)


def read(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag to (step, value), every event of it, as TensorBoard reads the directory."""
    reader = EventAccumulator(
        str(run / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False
    )
    reader.Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }


def expected(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The same from metrics.jsonl."""
    found: dict[str, list[tuple[int, float]]] = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        names = ["loss", *COUNTS] if line["split"] == "train" else ["loss", "accuracy"]
        for name in [name for name in names if line[name] is not None]:
            found.setdefault(f"{line['split']}/{name}", []).append((line["round"], line[name]))
    return found


def same(run: Path) -> bool:
    events, lines = read(run), expected(run)
    assert events.keys() == lines.keys()
    for tag, points in lines.items():
        assert [step for step, _ in events[tag]] == [step for step, _ in points], tag
        assert [v for _, v in events[tag]] == pytest.approx([v for _, v in points], rel=1e-6), tag  # float32
    return True


def test_every_number_in_metrics_is_an_event_of_its_round(tmp_path: Path) -> None:
    train(tmp_path / "run")
    assert same(tmp_path / "run")
    events = read(tmp_path / "run")
    assert [step for step, _ in events["train/loss"]] == [1, 2, 3, 4, 5]
    assert [step for step, _ in events["test/accuracy"]] == [0, 2, 4, 5]
    assert events["train/clients"] == [(t, 6.0) for t in range(1, 6)]


@pytest.mark.parametrize("after", range(ROUNDS + 1))
def test_resumed_run_has_each_step_once(after: int, tmp_path: Path) -> None:
    """Checkpoints lie at rounds 2 and 4, so that some rounds are run and written again."""
    with pytest.raises(Plug):
        train(tmp_path / "run", on_step=pull_after(after))
    train(tmp_path / "run")
    assert same(tmp_path / "run")


def test_event_file_of_a_killed_run_is_repaired(tmp_path: Path) -> None:
    with pytest.raises(Plug):
        train(tmp_path / "run", on_step=pull_after(3))
    (file,) = (tmp_path / "run/tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-7])  # half an event
    (file.parent / f".{file.name}.0a.tmp").write_bytes(b"begun")
    train(tmp_path / "run")
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert same(tmp_path / "run")


def test_link_at_the_former_temporary_name_is_not_followed(tmp_path: Path) -> None:
    """The temporary name is random, so that nobody can place a link there."""
    victim = tmp_path / "victim"
    victim.write_text("private")
    train(tmp_path / "run", rounds=1)
    (file,) = (tmp_path / "run/tensorboard").iterdir()
    (file.parent / f".{file.name}.new").symlink_to(victim)
    train(tmp_path / "run", rounds=2)
    assert victim.read_text() == "private"


def test_event_files_can_be_added_later_and_are_always_continued(tmp_path: Path) -> None:
    plain = train(tmp_path / "run", 3, tensorboard=False)
    assert not (tmp_path / "run/tensorboard").exists()
    assert (
        train(tmp_path / "run", 3).x_sha256 == plain.x_sha256
    )  # finished: the events are written nevertheless
    assert same(tmp_path / "run")
    train(tmp_path / "run", ROUNDS, tensorboard=False)
    assert same(tmp_path / "run") and len(read(tmp_path / "run")["train/loss"]) == ROUNDS


def test_event_files_do_not_change_the_run(tmp_path: Path) -> None:
    a, b = train(tmp_path / "a"), train(tmp_path / "b", tensorboard=False)
    assert a.x_sha256 == b.x_sha256
    assert (tmp_path / "a/config.toml").read_text() == (tmp_path / "b/config.toml").read_text()


def test_values_that_are_not_finite_have_no_event(tmp_path: Path) -> None:
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(24))))
    with pytest.raises(RunError):
        small.run(settings={"rounds": 3, "patience": 2}, task=task, out=tmp_path / "run", tensorboard=True)
    events = read(tmp_path / "run")
    assert "train/loss" not in events
    assert events["train/rejected"] == [(1, 6.0), (2, 6.0)]


def test_option_of_the_api_needs_a_directory(tmp_path: Path) -> None:
    config = {"data.clients": 4, "clients_per_round": 2, "client.steps": 1, "eval.sample": 20}
    fedopt.run("emnist_cr", rounds=1, config=config, out=tmp_path / "run", tensorboard=True)
    assert same(tmp_path / "run")
    with pytest.raises(UserError, match="name one with out"):
        fedopt.run("emnist_cr", rounds=1, config=config, tensorboard=True)


def test_commands_write_event_files_for_every_run(tmp_path: Path) -> None:
    words = ("--tensorboard", "--rounds", "2", "--json")
    assert command(*small_command("run", *words, "--out", tmp_path / "run")).code == 0
    assert same(tmp_path / "run")
    algorithms = ("--algorithms", "fedavg,fedyogi", "--seeds", "0:2")
    done = command(*small_command("compare", *words, *algorithms, "--out", tmp_path / "all"))
    assert done.code == 0, done.err
    runs = [tmp_path / "all" / name / seed for name in ("fedavg", "fedyogi") for seed in ("seed-0", "seed-1")]
    assert all(same(run) for run in runs)


def test_every_trial_of_a_sweep_has_event_files(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = small_command(*SWEEP, "--out", out, "--rounds", "2", patience=1)
    assert command(*words, "--grid", "client_lr=-1").code == 0
    assert not list(out.rglob("tensorboard"))
    done = command(*words, "--grid", "client_lr=-1|-2|38", "--tensorboard")  # the largest rate diverges
    assert done.code == 0, done.err
    runs = list((out / "trials").iterdir())
    assert len(runs) == 3 and all(same(run) for run in runs)
    commands = [json.loads((run / "run.json").read_text())["command"] for run in runs]
    assert sum("--tensorboard" in text for text in commands) == 2  # one was made before


@pytest.mark.parametrize("words", [["run"], ["compare", "--algorithms", "fedavg"], SWEEP])
def test_missing_package_is_reported_before_the_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    absent = lambda name, *rest: None if name == "tensorboard" else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    done = command(*small_command(*words, "--tensorboard", "--out", tmp_path / "run"))
    refused(done, "tensorboard", "pip install tensorboard")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_ends_the_run_in_one_line(tmp_path: Path) -> None:
    train(tmp_path / "run", 2, tensorboard=False)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with files_up_to(300), pytest.raises(RunError, match="cannot write .*tensorboard") as caught:
            train(tmp_path / "run", 2)
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path / "run/tensorboard") == []
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "done"  # as it was
    train(tmp_path / "run", 2)
    assert same(tmp_path / "run")


def test_metrics_of_all_tasks_are_valid_tags() -> None:
    names = [name for task in TASKS.values() for name in task.metrics]
    assert all(name.replace("_", "").isalnum() for name in names)
