"""A reproduction continues on another machine: its ended runs are stored, and restored from the results."""

from __future__ import annotations

import csv
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from claims.entry import Entry
from claims.restore import restore_runs
from claims.results import load_results, read_records, store_result

import fedopt
from claims import results, runner
from fedopt.errors import Diverged
from fedopt.runs.records import RunRecord, flatten, read_run

SETTINGS = {"data.clients": 4, "clients_per_round": 2}


@pytest.fixture
def run_root(tmp_path: Path) -> Path:
    """A directory with a finished run and a diverged one."""
    fedopt.run("synthetic_lr", rounds=8, executor="serial", out=tmp_path / "work" / "done", config=SETTINGS)
    with pytest.raises(Diverged):
        lost = SETTINGS | {"client.lr": 1e30, "patience": 1}
        fedopt.run(
            "synthetic_lr", rounds=8, executor="serial", out=tmp_path / "work" / "diverged", config=lost
        )
    return tmp_path / "work"


def test_restored_runs_have_the_numbers_of_the_original_runs(run_root: Path, tmp_path: Path) -> None:
    records = read_records(run_root)
    stored = store_result(results.EntryResult("test", "", [], False, None, records), tmp_path / "results")
    loaded = load_results(stored.parent)["test"]
    assert restore_runs(loaded, tmp_path / "other") == 2
    restored = read_records(tmp_path / "other")
    assert restored == records
    for name in ("done", "diverged"):
        ours, original = read_run(tmp_path / "other" / name), read_run(run_root / name)
        assert flatten(ours.config) == flatten(original.config) and ours.status == original.status == name
        assert _losses(ours) == pytest.approx(_losses(original), rel=1e-6)
    assert restore_runs(loaded, tmp_path / "other") == 0  # existing runs are left alone


def _losses(record: RunRecord) -> list[float]:
    return record.curve("train", "loss")[1]


def test_runs_without_all_training_lines_and_unfinished_runs_are_not_restored(
    run_root: Path, tmp_path: Path
) -> None:
    done = next(record for record in read_records(run_root) if record.status == "done")
    averaged = done._replace(train=done.train[1::2])
    stopped = done._replace(info={**done.info, "status": "interrupted"})
    old = done._replace(info={**done.info, "machine": {"torch": "2.13.0", "cpu": "AVX2"}})  # without fedopt
    for record in (averaged, stopped, old):
        result = results.EntryResult("test", "", [], False, None, [record])
        assert restore_runs(result, tmp_path / "other") == 0
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_reproduction_continues_from_stored_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process has done one task; another machine has only the stored results. It runs the other task."""
    stored = tmp_path / "results"
    options = ("reproduce", "so_test", "--scale", "smoke", "--data", "synthetic", "--workers", "1")
    first = Entry("test/so_lr", (*options, "--tasks", "so_lr"), 5, "test")
    both = Entry("test/all", options, 5, "test")
    entries = [first]
    monkeypatch.setattr(runner, "plan_entries", lambda found: entries)
    monkeypatch.setattr(runner, "load_results", lambda: load_results(stored))
    monkeypatch.setattr(runner, "store_result", lambda result: store_result(result, stored))
    assert runner.run_missing(tmp_path / "one", "", print) == 0
    entries.append(both)
    lines: list[str] = []
    assert runner.run_missing(tmp_path / "two", "", lines.append) == 0
    assert lines[1] == "test/all: 5 runs restored from stored results"
    tasks = [record.info["task"] for record in read_records(tmp_path / "two" / both.out)]
    assert sorted(tasks) == ["so_lr"] * 5 + ["so_nwp"] * 5
    # A run is stored once, although both entries have its directory.
    assert {
        name: [r.info["task"] for r in result.records] for name, result in load_results(stored).items()
    } == {
        "test/so_lr": ["so_lr"] * 5,
        "test/all": ["so_nwp"] * 5,
    }
    numbers = [_numbers(tmp_path / work / "runs/test/so_test/numbers.csv") for work in ("one", "two")]
    assert len(numbers[0]) == 5 and numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def _numbers(file: Path) -> list[float]:
    """Return our numbers of the tags task in a table of the reproduction."""
    with open(file, newline="") as table:
        return [float(row["ours (synthetic)"]) for row in csv.DictReader(table) if row["row"] == "SO LR"]


@pytest.fixture
def stored_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Entry, results.EntryResult]:
    """An entry with one ended run in its stored result, and an empty working directory."""
    entry = Entry("test/sweep", ("sweep", "synthetic_lr"), 5)
    info = {"task": "synthetic_lr", "seed": 0, "status": "done", "machine": {"cpu": "AVX2"}}
    record = RunRecord(Path("trials/a"), info, {}, [{"round": 1, "loss": 1.0}], [])
    result = results.EntryResult(entry.name, "", ["old"], False, 100.0, [record])
    monkeypatch.setattr(runner, "plan_entries", lambda found: [entry])
    monkeypatch.setattr(runner, "load_results", lambda: load_results(tmp_path / "results"))
    monkeypatch.setattr(runner, "store_result", lambda new: store_result(new, tmp_path / "results"))
    return entry, result


@pytest.mark.parametrize(("same_command", "runs", "seconds"), [(True, 1, 101.0), (False, 0, 1.0)])
def test_an_attempt_in_an_empty_directory_keeps_the_stored_runs_of_the_same_command(
    stored_sweep: tuple[Entry, results.EntryResult],
    same_command: bool,
    runs: int,
    seconds: float,
    tmp_path: Path,
) -> None:
    entry, result = stored_sweep
    command = shlex.join(entry.command()) if same_command else "fedopt sweep another_task"
    store_result(result._replace(command=command), tmp_path / "results")
    runner.collect(entry, tmp_path / "empty", runner.Attempt(130, 1.0), "new")
    found = load_results(tmp_path / "results")[entry.name]
    assert (len(found.records), found.cpu_seconds, found.complete) == (runs, seconds, False)
    assert found.commits == (["old", "new"] if same_command else ["new"])


@pytest.mark.parametrize(
    ("options", "complete"),
    [(["--rounds", "8"], True), (["--rounds", "9"], False), (["--rounds", "8", "--seeds", "0:2"], False)],
)
def test_an_interrupted_run_is_complete_only_with_all_seeds_and_rounds(
    options: list[str], complete: bool, run_root: Path
) -> None:
    """The directory has 8 rounds of seed 0. Exit code 130: the command was interrupted."""
    entry = Entry("test", ("run", "synthetic_lr", *options), 5)
    result = runner.make_result(entry, run_root, runner.Attempt(130, 1.0), "done", "commit")
    assert result.complete is complete
    diverged = runner.make_result(entry, run_root, runner.Attempt(1, 1.0), "diverged", "commit")
    assert diverged.complete is ("--seeds" not in options)  # a result, whatever the number of rounds


RUNNER = """
from pathlib import Path
import sys
from claims import __main__ as program, runner
from claims.entry import Entry
from claims.results import load_results, store_result

stored = Path(sys.argv.pop(1))
arguments = "run synthetic_lr --rounds 100000 --executor serial --set data.clients=4"
entry = Entry("test/long", (*arguments.split(), "--set", "clients_per_round=2"), 5)
for module in (program, runner):
    module.plan_entries = lambda found: [entry]
    module.load_results = lambda: load_results(stored)
runner.store_result = lambda result: store_result(result, stored)
sys.exit(program.main())
"""


def test_sigterm_ends_the_command_and_stores_its_progress(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(tmp_path / "results"), "run", "--work", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(runner.TASKS_PATH)}
    metrics, deadline = tmp_path / "runs/test/long/metrics.jsonl", time.monotonic() + 60
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        while not (metrics.exists() and '"round": 2' in metrics.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert "test/long: interrupted; its ended runs are stored" in output
    result = load_results(tmp_path / "results")["test/long"]
    assert not result.complete and result.cpu_seconds and result.records[0].status == "interrupted"
    assert read_run(tmp_path / "runs/test/long").status == "interrupted"  # it has a checkpoint
