"""Run directories: stopped anywhere, killed, extended, damaged, out of disk; and runs that diverge."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch
from safetensors import safe_open
from torch import nn

import fedopt
from conftest import Pool
from fedopt import cli
from fedopt.data.synthetic import emnist as synthetic_emnist
from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import Step
from fedopt.engine.sampling import uniform
from fedopt.errors import Diverged, RunError, UserError
from fedopt.runs import execute as run
from fedopt.runs.build_problem import build_problem
from fedopt.runs.client_table import DiskTable
from fedopt.runs.evaluation import evaluate
from fedopt.runs.resolve import resolve
from fedopt.runs.result import RunResult
from fedopt.runs.shared_data import open_data
from fedopt.tasks.metrics import mse

ROUNDS = 5
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedyogi": ("fedyogi", {}),
    "scaffold": ("scaffold", {}),
    "adaalter": ("adaalter", {}),
    "centralized": ("centralized", {"clients_per_round": 1, "client.optimizer": "adam"}),
    "plateau": (
        "fedavgm",
        {
            "client.schedule": "plateau",
            "client.window": 1,
            "client.patience": 1,
            "client.min_delta": 10.0,  # no round is that much better: the rate falls again and again
            "client.factor": 0.5,
        },
    ),
}


class Stop(Exception):
    """Somebody pulls the plug."""


def stop_after(round: int) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        if step.position.round == round:
            raise Stop

    return watch


def train(case: str, out: Path | None, every: int = 1, **options: Any) -> RunResult:
    algorithm, settings = RUNS[case]
    settings = settings | {"rounds": ROUNDS, "eval.every": 2, "checkpoint.every": every}
    settings |= options.pop("settings", {})
    return small.run(None, algorithm, settings, out=out, **options)


def interrupted(case: str, out: Path, every: int, after: int, **options: Any) -> None:
    with pytest.raises(Stop):
        train(case, out, every, on_step=stop_after(after), **options)


def lines(out: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the clock."""
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def info(out: Path) -> dict[str, Any]:
    return json.loads((out / "run.json").read_text())


def rows(out: Path) -> list[tuple[int, int]]:
    """Client and round of each row on disk."""
    names = [path.stem.split("-") for path in sorted((out / "clients").iterdir())]
    return [(int(client), int(t)) for client, t in names]


# Stopping and going on


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("case", RUNS)
def test_a_run_stopped_after_any_round_and_continued_is_the_uninterrupted_run(
    case: str, every: int, tmp_path: Path
):
    whole = train(case, tmp_path / "whole", every)
    assert torch.equal(whole.x, train(case, None).x), "a run without a directory is the same run"
    for after in range(ROUNDS):
        out = tmp_path / str(after)
        interrupted(case, out, every, after)
        assert info(out)["status"] == "running"
        continued = train(case, out, every)
        assert torch.equal(continued.x, whole.x)
        assert lines(out) == lines(tmp_path / "whole")
        assert info(out)["status"] == "done"


def test_the_plateau_schedule_above_does_change_the_rate():
    """The first round sets the mark, the second is no better by 10: from the third on the rate is lower."""
    rates = [line["client_lr"] for line in train("plateau", None).train]
    assert rates[:3] == pytest.approx([0.1, 0.1, 0.05])
    assert rates[-1] < 0.05


def test_a_run_stopped_many_times_is_the_uninterrupted_run(tmp_path: Path):
    for after in range(ROUNDS):
        interrupted("scaffold", tmp_path / "run", 1, after)
    assert train("scaffold", tmp_path / "run").x_sha256 == train("scaffold", None).x_sha256
    assert [line["round"] for line in lines(tmp_path / "run") if line["split"] == "train"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("case", ["fedyogi", "scaffold", "plateau"])
def test_three_rounds_extended_to_six_are_six_rounds(case: str, tmp_path: Path):
    six = {"rounds": 6, "eval.every": 1}
    whole = train(case, tmp_path / "whole", settings=six)
    first = train(case, tmp_path / "run", every=4, settings=six | {"rounds": 3})
    assert first.rounds == 3 and info(tmp_path / "run")["rounds"] == 3
    extended = train(case, tmp_path / "run", every=4, settings=six)
    assert extended.x_sha256 == whole.x_sha256 != first.x_sha256
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    assert (info(tmp_path / "run")["status"], info(tmp_path / "run")["rounds"]) == ("done", 6)


def test_a_finished_run_says_so_and_is_left_as_it_is(tmp_path: Path):
    first = train("fedyogi", tmp_path / "run")
    files = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    messages: list[str] = []
    again = train("fedyogi", tmp_path / "run", log=messages.append)
    assert again.summary() == first.summary() | {"seconds": again.seconds}
    assert [text for text in messages if "finished" in text and "5 rounds" in text]
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == files


def test_a_kill_before_the_first_round_does_not_make_the_directory_unusable(tmp_path: Path):
    """The files of a run come one after the other; config.toml is the last of them."""
    whole = train("fedyogi", tmp_path / "whole")
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(tmp_path / "whole" / "run.json", out)
    (out / "run.json").write_text(json.dumps(info(out) | {"status": "running"}))
    (out / "metrics.jsonl").touch()
    assert train("fedyogi", out).x_sha256 == whole.x_sha256


def test_what_was_written_after_the_checkpoint_is_cut_off_before_the_run_goes_on(tmp_path: Path):
    """So that another kill finds no round twice: the file is whole and in order after every step."""
    out = tmp_path / "run"
    interrupted("fedyogi", out, 2, after=3)
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "split": "train", "loss": 0.1}\n{"round": 5, "split": "tra')
    seen = []

    def look(step: Step) -> None:
        seen.append([line["round"] for line in lines(out) if line["split"] == "train"])

    assert train("fedyogi", out, 2, on_step=look).x_sha256 == train("fedyogi", None).x_sha256
    assert seen == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("file", ["state.safetensors", "position.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(file: str, tmp_path: Path):
    interrupted("scaffold", tmp_path / "run", 1, after=4)
    damaged = tmp_path / "run" / "checkpoints" / "000004" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0x40
    damaged.write_bytes(bytes(content))
    messages: list[str] = []
    assert (
        train("scaffold", tmp_path / "run", log=messages.append).x_sha256 == train("scaffold", None).x_sha256
    )
    assert any("000004" in text and "damaged" in text for text in messages)


def test_checkpoints_hold_the_state_and_nothing_else_and_only_the_last_are_kept(tmp_path: Path):
    train("scaffold", tmp_path / "run")
    directory = tmp_path / "run" / "checkpoints"
    assert sorted(p.name for p in directory.iterdir()) == ["000004", "000005"]
    for checkpoint in directory.iterdir():
        assert sorted(p.name for p in checkpoint.iterdir()) == ["position.json", "state.safetensors"]
        with safe_open(checkpoint / "state.safetensors", framework="pt") as file:
            assert sorted(file.keys()) == ["c", "x"]
    left_over = [p for p in (tmp_path / "run").rglob("*.tmp")]
    assert left_over == []


def test_a_model_without_options_can_be_run_and_continued(tmp_path: Path):
    task = replace(small.SMALL, model=partial(nn.Linear, small.FEATURES, small.CLASSES))
    result = small.run(task=task, out=tmp_path / "run")
    assert result.params == 8 * 4 + 4
    assert small.run(task=task, out=tmp_path / "run", settings={"rounds": 4}).rounds == 4


# SCAFFOLD's rows


def visited(rounds: int) -> set[int]:
    return {i for t in range(rounds) for i in uniform(0, t, 24, 6)}


def test_rows_exist_for_the_visited_clients_alone_and_old_ones_are_removed(tmp_path: Path):
    train("scaffold", tmp_path / "two")
    train("scaffold", tmp_path / "one", settings={"checkpoint.keep": 1})
    assert len(visited(ROUNDS)) < 24, "some client is not visited"
    assert {client for client, _ in rows(tmp_path / "two")} == visited(ROUNDS)
    last = {i: max(t for t in range(ROUNDS) if i in uniform(0, t, 24, 6)) for i in visited(ROUNDS)}
    assert dict(rows(tmp_path / "one")) == last
    assert len(rows(tmp_path / "one")) == len(last), "one row each"
    # The checkpoint of round 4 needs a second row of those who were seen in the fifth round and before.
    fifth = set(uniform(0, 4, 24, 6))
    assert len(rows(tmp_path / "two")) == len(last) + len(fifth & visited(4))


def test_rows_written_after_the_checkpoint_are_not_seen_by_the_continued_run(tmp_path: Path):
    interrupted("scaffold", tmp_path / "run", 2, after=3)
    late = [p for p in (tmp_path / "run" / "clients").iterdir() if p.stem.endswith("-000002")]
    assert len(late) == 6, "the third round has written its rows, its checkpoint has not been written"
    for path in late:
        path.write_bytes(b"half of a row")
    assert train("scaffold", tmp_path / "run", 2).x_sha256 == train("scaffold", None).x_sha256


def test_a_table_opened_at_an_earlier_round_is_the_table_of_that_round(tmp_path: Path):
    table = DiskTable(tmp_path / "rows", ("c_i",), 0)
    for t, clients in enumerate(([1, 2], [2, 3], [2])):
        for client in clients:
            table.write(t, client, (torch.full((3,), 10.0 * t + client),))
    assert table.read(2)[0].tolist() == [22.0] * 3
    earlier = DiskTable(tmp_path / "rows", ("c_i",), 2)
    assert [earlier.read(i) and earlier.read(i)[0][0].item() for i in (0, 1, 2, 3)] == [None, 1.0, 12.0, 13.0]
    assert len(list((tmp_path / "rows").iterdir())) == 4


@pytest.mark.xdist_group("workers")
def test_rows_are_written_by_workers_as_by_this_process(tmp_path: Path, pool: Pool):
    algorithm, settings = "scaffold", {"rounds": ROUNDS}
    result = small.run(pool(2), algorithm, settings, out=tmp_path / "workers")
    serial = small.run(None, algorithm, settings, out=tmp_path / "serial")
    assert result.x_sha256 == serial.x_sha256
    assert rows(tmp_path / "workers") == rows(tmp_path / "serial")
    for path in (tmp_path / "serial" / "clients").iterdir():
        assert (tmp_path / "workers" / "clients" / path.name).read_bytes() == path.read_bytes()


Usage = namedtuple("Usage", "total used free")


def test_a_run_whose_rows_do_not_fit_on_the_disk_is_refused_before_round_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Visited: 24 (1 - (3/4)^5) = 18 clients of 848 bytes each, and more while rounds are under way."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 15_000, 15_000))
    with pytest.raises(RunError, match=r"18 clients needs .* GB.*disk") as caught:
        train("scaffold", tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert (lines(tmp_path / "run"), info(tmp_path / "run")["status"]) == ([], "failed")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 0, 10**9))
    assert train("scaffold", tmp_path / "run").x_sha256 == train("scaffold", None).x_sha256


def test_rows_that_are_already_there_do_not_count_twice_when_a_run_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A disk with room for the run from its beginning has room for the rest of it."""
    settings = {"rounds": 20, "clients_per_round": 12, "client.steps": 1}
    room = 4 * small.D * (24 + 2 * 12) + 1000  # every client's row, and two rounds under way

    def usage(path: Path) -> Usage:
        used = sum(4 * small.D for p in (tmp_path / "run" / "clients").glob("*"))
        return Usage(room, used, room - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    interrupted("scaffold", tmp_path / "run", 1, after=10, settings=settings)
    assert train("scaffold", tmp_path / "run", settings=settings).rounds == 20


# kill -9


KILLED = {
    "data.clients": "6",
    "clients_per_round": "4",
    "client.steps": "2",
    "eval.sample": "50",
    "checkpoint.every": "2",
}


def test_a_killed_command_typed_again_ends_where_the_uninterrupted_one_does(tmp_path: Path):
    """SCAFFOLD on the CNN: a row of round 4 on disk, and no line of it, tell that it was under way."""
    settings = [word for key, value in KILLED.items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "run"
    words = ["run", "emnist_cr", "--algorithm", "scaffold", "--rounds", "5", "--seed", "1", *settings]
    words += ["--workers", "1", "--json", "--out", str(out)]
    command = [sys.executable, "-m", "fedopt", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("clients/*-000003.safetensors")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = [line["round"] for line in lines(out) if line["split"] == "train"]
    assert done == [1, 2, 3], "the kill landed inside round 4"
    assert info(out)["status"] == "running"
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["000002"]

    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "continuing after round 2" in again.stderr
    settings_read = {key: int(value) for key, value in KILLED.items()} | {"rounds": 5, "seed": 1}
    whole = fedopt.run("emnist_cr", algorithm="scaffold", config=settings_read, out=tmp_path / "whole")
    assert json.loads(again.stdout)["x_sha256"] == whole.x_sha256
    assert lines(out) == lines(tmp_path / "whole")
    assert [line["round"] for line in lines(out) if line["split"] == "train"] == [1, 2, 3, 4, 5]
    assert not any(_alive(pid) for pid in workers), "workers leave when their main process is gone"
    shutil.rmtree(tmp_path)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


# Runs that diverge


def diverging(out: Path | None, **settings: Any) -> RunResult:
    """No client's update is finite, from the first round on."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(24))))
    return small.run(settings={"rounds": 10, "patience": 3} | settings, task=task, out=out)


@pytest.mark.parametrize(("every", "rounds"), [(10, 10), (1, 10), (1, 3)])
def test_a_run_that_stays_non_finite_stops_with_one_line_however_often_it_is_started(
    every: int, rounds: int, tmp_path: Path
):
    out = tmp_path / "run"
    for attempt in range(2):
        with pytest.raises(
            RunError, match=r"^round \d+: no finite update for .*clients c\d\d, c\d\d"
        ) as caught:
            diverging(out, rounds=rounds, **{"checkpoint.every": every})
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, Diverged)
        assert (info(out)["status"], info(out)["message"]) == ("diverged", str(caught.value))
        assert info(out)["rounds"] == rounds and info(out)["rounds_done"] >= 3
        assert "train_loss" not in info(out)  # no round had a finite one
        train_lines = [line for line in lines(out) if line["split"] == "train"]
        if attempt == 0:
            assert str(caught.value).startswith("round 3:")
            assert [line["round"] for line in train_lines] == [1, 2, 3]
        assert all(line["loss"] is None and line["rejected"] == 6 for line in train_lines)


def test_only_rounds_in_a_row_count_towards_giving_up():
    """One client a round, every second one tainted: the sampler tells how many follow on each other."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(0, 24, 2))))
    tainted = [uniform(0, t, 24, 1)[0] % 2 == 0 for t in range(20)]
    streaks = [len(streak) for streak in "".join("x" if bad else " " for bad in tainted).split()]
    longest = max(streaks)
    assert 1 < longest < sum(streaks)
    settings = {"clients_per_round": 1, "rounds": 20, "eval.every": 20}
    result = small.run(settings=settings | {"patience": longest + 1}, task=task)
    assert [line["rejected"] for line in result.train] == [int(bad) for bad in tainted]
    assert [line["clients"] for line in result.train] == [int(not bad) for bad in tainted]
    assert [line["loss"] is None for line in result.train] == tainted
    with pytest.raises(RunError, match=f"for {longest} rounds in a row"):
        small.run(settings=settings | {"patience": longest}, task=task)


def test_a_loss_that_is_infinite_while_updates_are_finite_ends_the_run_in_one_line(tmp_path: Path):
    """A squared error of 1e20 is beyond float32, its gradient is not."""
    task = replace(small.SMALL, prepare=small.far_away, loss=small.squared, metrics={"mse": mse})
    with pytest.raises(RunError, match=r"^round 5: .*clients c\d\d") as caught:
        small.run(settings={"rounds": 10, "client.lr": 1e-30}, task=task, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    losses = [line["loss"] for line in lines(tmp_path / "run")]
    assert losses == [None] * len(losses)


def run_main(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["fedopt", *words])
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_command_of_a_diverging_run_exits_with_1_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["run", "emnist_cr", "--rounds", "6", "--executor", "serial", "--out", str(tmp_path / "run")]
    for setting in ("client.lr=1e30", "client.steps=2", "data.clients=3", "clients_per_round=2"):
        words += ["--set", setting]
    words += ["--set", "eval.sample=50", "--set", "patience=2"]
    for _ in range(2):
        assert run_main(words, monkeypatch) == 1
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and captured.out == ""
        last = captured.err.strip().splitlines()[-1]
        assert last.startswith("failed: round 2: ") and "clients writer" in last
        assert [line["round"] for line in lines(tmp_path / "run") if line["split"] == "train"] == [1, 2]
        assert info(tmp_path / "run")["status"] == "diverged"


def test_a_run_without_a_batch_to_train_on_has_failed_and_not_diverged(tmp_path: Path):
    with pytest.raises(RunError, match="client.drop_last=false") as caught:
        settings = {"rounds": 5, "patience": 2, "client.batch_size": 100, "client.drop_last": True}
        small.run(settings=settings, out=tmp_path / "run")
    assert not isinstance(caught.value, Diverged)
    assert info(tmp_path / "run")["status"] == "failed"


def test_the_losses_before_a_run_diverged_are_in_its_record(tmp_path: Path):
    """The even clients are tainted: rounds go well until three of them follow on each other."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(0, 24, 2))))
    settings = {"clients_per_round": 1, "rounds": 200, "patience": 3, "eval.every": 1}
    with pytest.raises(Diverged):
        small.run(settings=settings, task=task, out=tmp_path / "run")
    train_lines, test_lines = (
        [x for x in lines(tmp_path / "run") if x["split"] == s] for s in ("train", "test")
    )
    found, done = info(tmp_path / "run"), len(train_lines)
    assert (found["rounds"], found["rounds_done"]) == (200, done)
    losses = [line["loss"] for line in train_lines[-100:] if line["loss"] is not None]
    assert found["train_loss"] == pytest.approx(np.mean(losses))
    assert found["value"] == pytest.approx(np.mean([line["accuracy"] for line in test_lines[1:][-100:]]))


# Runs that a search stops


def prune_after(round: int) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        if step.position.round == round:
            raise run.Stop("not among the best third")

    return watch


@pytest.mark.parametrize("case", ["fedyogi", "scaffold"])
@pytest.mark.parametrize("every", [1, 10])
def test_a_pruned_run_keeps_its_place_and_going_on_is_the_uninterrupted_run(
    case: str, every: int, tmp_path: Path
):
    out = tmp_path / "run"
    with pytest.raises(run.Stop, match="not among the best third"):
        train(case, out, every, on_step=prune_after(3))
    found = info(out)
    assert (found["status"], found["message"]) == ("pruned", "not among the best third")
    assert (found["rounds"], found["rounds_done"]) == (ROUNDS, 3)
    assert [line["round"] for line in lines(out) if line["split"] == "train"] == [1, 2, 3]
    assert found["train_loss"] == pytest.approx(
        np.mean([line["loss"] for line in lines(out) if line["split"] == "train"])
    )
    seen: list[int] = []
    continued = train(case, out, every, on_step=lambda step: seen.append(step.position.round))
    assert seen == [4, 5], "the checkpoint was at the round at which it was stopped"
    assert continued.x_sha256 == train(case, None).x_sha256
    assert info(out)["status"] == "done" and "message" not in info(out) and "rounds_done" not in info(out)


def test_a_run_pruned_before_its_first_round_starts_again(tmp_path: Path):
    with pytest.raises(run.Stop):
        train("fedyogi", tmp_path / "run", on_step=prune_after(0))
    assert (info(tmp_path / "run")["status"], info(tmp_path / "run")["rounds_done"]) == ("pruned", 0)
    assert train("fedyogi", tmp_path / "run").x_sha256 == train("fedyogi", None).x_sha256


def test_a_run_without_a_directory_can_be_stopped_too():
    with pytest.raises(run.Stop):
        train("fedyogi", None, on_step=prune_after(2))


def test_while_a_finished_run_is_extended_its_old_result_is_gone(tmp_path: Path):
    """Whoever looks at it meanwhile sees the mean so far, not the one of the shorter run."""
    train("fedyogi", tmp_path / "run", settings={"rounds": 3})
    assert {"value", "x_sha256"} <= info(tmp_path / "run").keys()
    seen: list[dict[str, Any]] = []
    train("fedyogi", tmp_path / "run", on_step=lambda step: seen.append(info(tmp_path / "run")))
    for found in seen:
        assert (found["status"], found["rounds"]) == ("running", ROUNDS)
        assert not {"value", "train_loss", "x_sha256", "seconds"} & found.keys()


# Runs that stop at a given round


@pytest.mark.parametrize("case", ["fedyogi", "scaffold"])
@pytest.mark.parametrize("every", [1, 10])
def test_run_stopped_at_a_round_resumes_as_the_uninterrupted_run(case: str, every: int, tmp_path: Path):
    out = tmp_path / "run"
    partial_result = train(case, out, every, until=3)
    found = info(out)
    assert (found["status"], found["rounds"], found["rounds_done"]) == ("pruned", ROUNDS, 3)
    assert partial_result.rounds == 3 and partial_result.train_loss == found["train_loss"]
    assert [line["round"] for line in lines(out) if line["split"] == "train"] == [1, 2, 3]
    seen: list[int] = []
    train(case, out, every, until=2, on_step=lambda step: seen.append(step.position.round))
    assert seen == [] and info(out)["status"] == "pruned", "round 2 was reached before"
    train(case, out, every, until=4)
    whole = train(case, out, every, until=ROUNDS, on_step=lambda step: seen.append(step.position.round))
    assert seen == [5]
    assert whole.x_sha256 == train(case, tmp_path / "whole", every).x_sha256
    assert lines(out) == lines(tmp_path / "whole")
    assert info(out)["status"] == "done" and "message" not in info(out) and "rounds_done" not in info(out)


def test_run_without_a_directory_stops_at_a_round():
    assert train("fedyogi", None, until=2).rounds == 2


def test_run_that_diverges_at_the_stop_has_diverged(tmp_path: Path):
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(24))))
    with pytest.raises(Diverged):
        small.run(settings={"rounds": 10, "patience": 3}, task=task, out=tmp_path / "run", until=3)
    assert info(tmp_path / "run")["status"] == "diverged"


# Data that is opened once


class Counted:
    """A federation that notes how often it is opened."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, source: str) -> Any:
        small._note(str(self.log), os.getpid())
        return small.federation(source)


def opened_times(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_a_run_in_one_process_opens_its_data_once(tmp_path: Path):
    task = replace(small.SMALL, federation=Counted(tmp_path / "log"))
    assert small.run(task=task).x_sha256 == small.run().x_sha256
    assert opened_times(tmp_path / "log") == 1


def test_each_worker_opens_the_data_for_itself(pool: Pool, tmp_path: Path):
    task = replace(small.SMALL, federation=Counted(tmp_path / "log"))
    assert small.run(pool(2), task=task).x_sha256 == small.run().x_sha256
    pids = (tmp_path / "log").read_text().split()
    assert len(pids) == len(set(pids)) == 3, "this process and two workers, once each"


def test_runs_that_share_opened_data_are_the_runs_that_open_it(tmp_path: Path):
    task = replace(small.SMALL, federation=Counted(tmp_path / "log"))
    settings = {"eval.sample": 30, "eval.every": 1}
    config = resolve(task, "fedavg", small.SETTINGS | settings)
    opened = open_data(build_problem(task, config), config.eval.sample)
    assert [len(column) for column in opened.sample] == [30, 30, 30]
    for algorithm, seed in (("fedavg", 0), ("fedyogi", 3)):
        changed = settings | {"seed": seed}
        shared = small.run(None, algorithm, changed, task, data=opened)
        alone = small.run(None, algorithm, changed)
        assert shared.x_sha256 == alone.x_sha256 and shared.value == alone.value
    assert opened_times(tmp_path / "log") == 1


@pytest.mark.parametrize("rate", ["server.lr=1e39", "client.lr=1e39"])
def test_a_rate_beyond_float32_is_not_a_traceback(
    rate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["run", "emnist_cr", "--rounds", "1", "--executor", "serial", "--out", str(tmp_path / "run")]
    for setting in (rate, "client.steps=1", "data.clients=1", "clients_per_round=1", "eval.sample=50"):
        words += ["--set", setting]
    assert run_main(words, monkeypatch) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err


# Evaluation of a finished run


def test_percentiles_over_clients(tmp_path: Path):
    """By hand: the accuracy of the trained module on each of five writers."""
    settings = {"data.clients": 5, "clients_per_round": 5, "client.steps": 1, "rounds": 1, "eval.sample": 50}
    fedopt.run("emnist_cr", config=settings, out=tmp_path / "run")
    measured = evaluate(tmp_path / "run", "test", "serial", None)
    module = fedopt.load(tmp_path / "run").model
    hits, losses = [], []
    for i in range(5):
        pixels, labels = synthetic_emnist.examples("test", i).values()
        with torch.no_grad():
            outputs = module(torch.tensor(pixels).float() / 255)
        hits.append(outputs.argmax(1).numpy() == labels)
        losses.append(nn.functional.cross_entropy(outputs, torch.tensor(labels), reduction="none").numpy())
    assert measured["clients"] == 5 and measured["examples"] == sum(map(len, hits))
    assert measured["accuracy"] == pytest.approx(np.concatenate(hits).mean(), rel=1e-9)
    assert measured["loss"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-5)
    by_client = sorted(float(h.mean()) for h in hits)
    expected = dict(zip(("25", "50", "75"), by_client[1:4], strict=True))  # quarters of five are themselves
    expected["5"] = by_client[0] + 0.2 * (by_client[1] - by_client[0])
    expected["95"] = by_client[4] - 0.2 * (by_client[4] - by_client[3])
    assert measured["percentiles_over_clients"] == pytest.approx(expected)


def test_a_directory_in_use_is_refused_in_one_line(tmp_path: Path):
    def while_running(step: Step) -> None:
        with pytest.raises(UserError, match="in use by another fedopt process"):
            train("fedyogi", tmp_path / "run")

    train("fedyogi", tmp_path / "run", on_step=while_running)


def test_an_executor_serves_runs_with_and_without_a_directory_one_after_the_other(tmp_path: Path):
    executor = Serial()
    results = [
        small.run(executor, "scaffold", out=out) for out in (None, tmp_path / "a", None, tmp_path / "b")
    ]
    assert len({result.x_sha256 for result in results}) == 1
