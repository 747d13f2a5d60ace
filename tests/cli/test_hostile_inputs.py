"""Inputs that are deep, huge, of the wrong type or not files: one line, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typed import FinishedRun, fedopt, message_lines, refused, run_small
from written import write_run

HUGE = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
ARGUMENTS = {
    "a seed of 5,000 digits": ["run", "emnist_cr", "--set", f"seed={HUGE}"],
    "seeds of 5,000 digits": ["run", "emnist_cr", "--seeds", f"0:{HUGE}"],
    "a deeply nested value": ["run", "emnist_cr", "--set", f"client.lr={DEEP}"],
    "a long value": ["run", "emnist_cr", "--set", f"client.lr={'a.' * 3000}"],
    "a value that is not UTF-8": ["run", "emnist_cr", "--set", "client.lr=\udcff"],
    "a task that is not UTF-8": ["run", "emnist\udcff"],
    "data that are not UTF-8": ["run", "emnist_cr", "--data", "/tmp/\udcff"],
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_hostile_argument_is_refused_in_one_short_line(case: str) -> None:
    done = fedopt(*ARGUMENTS[case])
    refused(done)
    assert len(done.err) < 500


WRONG: dict[str, Any] = {
    "a string": "x",
    "a list": [1],
    "a table": {"a": 1},
    "true": True,
    "a negative number": -1,
    "infinity": float("inf"),
    "an integer of 4,000 digits": 10**4000,
    "null": None,
    "deep nesting": "DEEP",
}


def damaged_texts(name: str, text: str) -> list[str]:
    """Contents of a file in which one value at a time has a wrong type."""
    if name == "metrics.jsonl":
        lines = [json.loads(line) for line in text.splitlines()]
        keys = dict.fromkeys(key for line in lines for key in line)
        changed = [
            [line | ({key: value} if key in line else {}) for line in lines]
            for key in keys
            for value in WRONG.values()
        ]
        return ["".join(dumps(line) + "\n" for line in lines) for lines in changed]
    if name == "config.toml":
        values = [value for value in WRONG.values() if value is not None]
        tables = [{"client": {"lr": v}} for v in values] + [{"seed": v} for v in values]
        return [tomli_w.dumps(table).replace('"DEEP"', DEEP) for table in tables]
    document = json.loads(text)
    return [dumps(document | {key: value}) for key in document for value in WRONG.values()]


def dumps(document: Any) -> str:
    return json.dumps(document).replace('"DEEP"', DEEP)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "data.json", "config.toml"])
def test_damaged_runs_do_not_end_the_report_of_an_intact_run(
    name: str, finished_run: FinishedRun, tmp_path: Path
) -> None:
    write_run(tmp_path / "intact", seed=7, command="fedopt run the-intact-one")
    files = {file.name: file.read_bytes() for file in finished_run.path.iterdir() if file.is_file()}
    for number, text in enumerate(damaged_texts(name, files[name].decode())):
        run = tmp_path / f"damaged-{number}"
        run.mkdir()
        for other, data in files.items():
            (run / other).write_bytes(data)
        (run / name).write_text(text)
    done = fedopt("report", tmp_path)
    assert done.code == 0, done.err
    assert all("left out" in line and name in line for line in message_lines(done.err)), done.err
    assert "the-intact-one" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("wrong", ["a list", "deep nesting", "an integer of 4,000 digits"])
def test_wrong_types_in_run_json_do_not_end_other_commands_with_a_traceback(
    wrong: str, run_copy: Path
) -> None:
    file = run_copy / "run.json"
    info = json.loads(file.read_text())
    for key in ("rounds", "status", "fingerprint", "segments"):
        file.write_text(dumps(info | {key: WRONG[wrong]}))
        refused(run_small(run_copy), "run.json")
        refused(fedopt("export", run_copy), "run.json")


@pytest.mark.parametrize("name", ["run.json", "config.toml", "metrics.jsonl"])
def test_named_pipe_in_place_of_a_file_is_refused(name: str, run_copy: Path) -> None:
    (run_copy / name).unlink()
    os.mkfifo(run_copy / name)
    refused(run_small(run_copy), name, "not a regular file")
    refused(fedopt("report", run_copy), name, "not a regular file")


def test_named_pipe_in_place_of_a_state_is_a_damaged_checkpoint(
    run_copy: Path, finished_run: FinishedRun
) -> None:
    state = run_copy / "checkpoints" / "000003" / "state.safetensors"
    state.unlink()
    os.mkfifo(state)
    done = run_small(run_copy)
    assert (done.code, json.loads(done.out)["x_sha256"]) == (0, finished_run.summary["x_sha256"])
    assert "000003 is damaged" in done.err


def test_unreadable_file_is_not_reported_as_damaged(run_copy: Path) -> None:
    """A loop of links stands for any error of the operating system, also for root."""
    (run_copy / "config.toml").unlink()
    (run_copy / "config.toml").symlink_to("config.toml")
    done = fedopt("export", run_copy)
    assert "damaged" not in done.err
    shutil.rmtree(run_copy / "checkpoints" / "000003")
    (run_copy / "run.json").unlink()
    (run_copy / "run.json").symlink_to("run.json")
    refused(fedopt("report", run_copy), "cannot read", "run.json")


def test_small_limit_of_open_files_is_reported(tmp_path: Path) -> None:
    words = f"run emnist_cr --set data.clients=20 --rounds 20 --workers 4 --out {tmp_path / 'run'}"
    line = f"ulimit -n 20; exec {sys.executable} -m fedopt {words}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "open files" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
