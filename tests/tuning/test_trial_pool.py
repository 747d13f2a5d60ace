"""The pool of worker processes: kills, interrupts, full disks and independence of the number of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deadly_trials
import pytest
from sweeps import (
    find_trials,
    group_pids,
    modification_times,
    read_info,
    read_states,
    read_table,
    recorded_rounds,
    run_command_of,
    run_sweep,
    started,
    sweep_words,
    wait_for,
    worker_pids,
)
from typed import fedopt, files_up_to, refused, temporary_files

from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import WorkerError
from fedopt.reports.progress import ProgressBar
from fedopt.tuning import pool as trial_pool
from fedopt.tuning.pool import TrialPool
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.runner import run_trials
from fedopt.tuning.trials import Trial, WorkItem, make_trial


def test_killed_sweep_and_killed_worker_give_the_same_results(finished: Any, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = sweep_words("--out", out, "--workers", "1", algorithm="fedavg,fedadagrad")
    with started(words) as process:
        wait_for(lambda: recorded_rounds(out) >= 2)
        process.kill()
        process.wait()
        wait_for(lambda: not group_pids(process), seconds=20)  # workers end with the main process
    with started(words) as process:
        before = recorded_rounds(out)
        wait_for(lambda: recorded_rounds(out) > before)
        (worker,) = worker_pids(process)
        os.kill(worker, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    assert read_states(out) == read_states(finished.out)  # which two workers have run
    assert (out / "sweep.csv").read_text() == (finished.out / "sweep.csv").read_text()


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_killed_search_continues_with_the_same_decisions_on_other_workers(
    search: str, tmp_path: Path
) -> None:
    reference, out = tmp_path / "reference", tmp_path / "killed"
    options: dict[str, Any] = {"grid": "client_lr=0|1|2|38, server_lr=-1|0", "rounds": 9}
    summary = run_sweep(reference, "--search", search, "--workers", "2", **options)
    words = sweep_words("--out", out, "--search", search, "--workers", "1", **options)
    with started(words) as process:
        wait_for(lambda: recorded_rounds(out) >= summary["rounds_run"] // 2)
        process.kill()
        process.wait()
        wait_for(lambda: not group_pids(process), seconds=20)
    assert recorded_rounds(out) < summary["rounds_run"]
    assert fedopt(*words).code == 0
    assert (out / "sweep.csv").read_text() == (reference / "sweep.csv").read_text()
    assert read_states(out) == read_states(reference)
    before = modification_times(out)
    assert fedopt(*words).code == 0
    assert modification_times(out) == before  # a third time, nothing is run
    best = out / read_table(out)[0]["directory"]
    assert run_command_of(best, tmp_path / "alone")["x_sha256"] == read_info(best)["x_sha256"]


def test_worker_that_is_killed_before_any_has_started_is_replaced(finished: Any, tmp_path: Path) -> None:
    out = tmp_path / "early"
    with started(sweep_words("--out", out, "--workers", "2", algorithm="fedavg,fedadagrad")) as process:
        os.kill(wait_for(lambda: worker_pids(process))[0], signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert (out / "sweep.csv").read_text() == (finished.out / "sweep.csv").read_text()


def test_killed_resource_tracker_shows_no_traceback(tmp_path: Path) -> None:
    """Python starts another one, which does not know the semaphores of the pool."""
    out = tmp_path / "out"
    with started(sweep_words("--out", out, "--workers", "1", algorithm="fedavg")) as process:
        wait_for(lambda: recorded_rounds(out) > 0)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in group_pids(process)}
        (tracker,) = (pid for pid, command in commands.items() if b"resource_tracker import" in command)
        os.kill(tracker, signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in stderr, stderr


@pytest.mark.parametrize(
    ("search", "moment"),
    [("grid", "while workers start"), ("grid", "while trials run"), ("optuna", "while trials run")],
)
def test_interrupt_exits_with_130_and_leaves_no_process(tmp_path: Path, moment: str, search: str) -> None:
    out = tmp_path / "interrupted"
    words = sweep_words("--out", out, "--workers", "1", "--search", search, grid="client_lr=1|2", rounds=5000)
    with started(words) as process:
        wait_for(lambda: worker_pids(process) if "workers" in moment else recorded_rounds(out) > 2)
        os.killpg(process.pid, signal.SIGINT)  # like a terminal, to all processes of the group
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        _, line = stderr.splitlines()  # after the heading
        assert line.startswith("interrupted; to resume: fedopt sweep so_lr")
        wait_for(lambda: not group_pids(process), seconds=20)
    assert temporary_files(out) == []


def test_trial_whose_worker_dies_three_times_is_named(tmp_path: Path) -> None:
    kinds = (deadly_trials.DEADLY, deadly_trials.SLOW, deadly_trials.QUICK)
    deadly, slow, quick = (
        make_trial(tmp_path, "so_lr", "fedavg", {"client_lr": kind}, {"rounds": 1}) for kind in kinds
    )
    completed: list[Trial] = []
    with (
        ProgressBar("trials", 3) as bar,
        TrialPool(2, SweepProgress(bar, 3)) as pool,
        patch.object(trial_pool, "_run_in_worker", deadly_trials.run),
        pytest.raises(WorkerError) as error,
    ):
        for item in pool.run([WorkItem(trial, 1) for trial in (slow, deadly, quick)]):
            completed.append(item.trial)
    assert f"{deadly.label} ({deadly.path}) died 3 times" in str(error.value)
    assert slow in completed  # although it was running when the other died


def test_full_disk_is_reported_in_one_line_and_the_same_command_continues(copy: Path) -> None:
    words = sweep_words("--out", copy, "--workers", "1", grid="client_lr=1|0.5")
    before = read_states(copy)
    with files_up_to(100_000):  # a checkpoint has 202,000 bytes
        done = fedopt(*words)
    refused(done, "trial fedavg client_lr=0.5", "File too large", code=1, after_progress=True)
    after = read_states(copy)
    assert {name: after[name] for name in before} == before
    assert temporary_files(copy) == []
    assert fedopt(*words).code == 0
    (failed,) = after.keys() - before.keys()
    assert read_states(copy)[failed][0] == "done"


def test_run_trials_runs_each_trial_once_to_its_largest_number_of_rounds(copy: Path) -> None:
    complete = find_trials(copy)["fedavg 1"]
    command = read_info(complete)["command"].split()
    settings = {}
    for word, value in zip(command, command[1:], strict=False):
        if word == "--set":
            key, _, text = value.partition("=")
            settings[key] = float(text) if key.endswith(".lr") else int(text)
    del settings["client.lr"], settings["server.lr"]
    point = {"client_lr": 1.0, "server_lr": 0.0}
    known = make_trial(complete.parent, "so_lr", "fedavg", point, {**settings, "rounds": 4})
    assert known.path == complete
    new = [
        make_trial(complete.parent, "so_lr", "fedavg", {**point, "client_lr": 0.5}, {**settings, "rounds": n})
        for n in (1, 2)
    ]
    before, notified = modification_times(copy), list[Trial]()
    run_trials([known, *new], executor=ExecutorOptions(workers=1), after=notified.append)
    assert notified == [known, new[1]]
    assert read_info(new[0].path)["rounds"] == 2
    assert {file: time for file, time in modification_times(copy).items() if file in before} == before


def test_script_without_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    grid = "client_lr=-1, server_lr=0"
    script.write_text(
        f"import fedopt\nfedopt.sweep('synthetic_lr', 'fedavg', '{grid}', rounds=1, out='out')\n"
    )
    run = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith("fedopt.errors.WorkerError: ")
    assert "needs `if __name__ == '__main__':`" in last
