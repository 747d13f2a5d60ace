"""A killed command resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from written import read_info, read_lines

import fedopt

KILLED = {
    "data.clients": "6",
    "clients_per_round": "4",
    "client.steps": "2",
    "eval.sample": "50",
    "checkpoint.every": "2",
}


def test_killed_command_resumes_to_the_result_of_an_uninterrupted_one(tmp_path: Path):
    """SCAFFOLD on the CNN. Round 4 was running: it has a row on disk and no line in metrics.jsonl."""
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
    done = [line["round"] for line in read_lines(out, "train")]
    assert done == [1, 2, 3], "the kill landed inside round 4"
    assert read_info(out)["status"] == "running"
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["000002"]

    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "continuing after round 2" in again.stderr
    settings_read = {key: int(value) for key, value in KILLED.items()} | {"rounds": 5, "seed": 1}
    whole = fedopt.run("emnist_cr", algorithm="scaffold", config=settings_read, out=tmp_path / "whole")
    assert json.loads(again.stdout)["x_sha256"] == whole.x_sha256
    assert read_lines(out) == read_lines(tmp_path / "whole")
    assert [line["round"] for line in read_lines(out, "train")] == [1, 2, 3, 4, 5]
    assert not any(_is_alive(pid) for pid in workers), "workers leave when their main process is gone"
    shutil.rmtree(tmp_path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
