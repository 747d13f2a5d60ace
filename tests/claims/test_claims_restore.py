"""A reproduction continues on another machine: its ended runs are stored, and restored from the results."""

from __future__ import annotations

import csv
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
    for record in (averaged, stopped):
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
    tasks = [record.info["task"] for record in load_results(stored)["test/all"].records]
    assert tasks == ["so_nwp"] * 5
    numbers = [_numbers(tmp_path / work / "runs/test/so_test/numbers.csv") for work in ("one", "two")]
    assert len(numbers[0]) == 5 and numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def _numbers(file: Path) -> list[float]:
    """Return our numbers of the tags task in a table of the reproduction."""
    with open(file, newline="") as table:
        return [float(row["ours (synthetic)"]) for row in csv.DictReader(table) if row["row"] == "SO LR"]


RUNNER = """
from pathlib import Path
import sys
from claims import __main__ as program, runner
from claims.entry import Entry
from claims.results import load_results, store_result

stored = Path(sys.argv.pop(1))
arguments = "run synthetic_lr --rounds 100000 --executor serial --set data.clients=4"
entry = Entry("test/long", (*arguments.split(), "--set", "clients_per_round=2"), 5)
runner.plan_entries = lambda found: [entry]
runner.load_results = lambda: load_results(stored)
runner.store_result = lambda result: store_result(result, stored)
sys.exit(program.main())
"""


def test_sigterm_ends_the_command_and_stores_its_progress(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(tmp_path / "results"), "run", "--work", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    metrics, deadline = tmp_path / "runs/test/long/metrics.jsonl", time.monotonic() + 60
    while not (metrics.exists() and '"round": 2' in metrics.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert "test/long: interrupted; its ended runs are stored" in output
    result = load_results(tmp_path / "results")["test/long"]
    assert not result.complete and result.cpu_seconds and result.records[0].status == "interrupted"
    assert read_run(tmp_path / "runs/test/long").status == "interrupted"  # it has a checkpoint
