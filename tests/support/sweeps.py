"""Small sweeps on the command line, their files, and processes of a running sweep."""

from __future__ import annotations

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from typed import fedopt

ROUNDS = 4
SETTINGS = {
    "data.clients": 12,
    "clients_per_round": 2,
    "client.steps": 1,
    "client.batch_size": 8,
    "model.vocabulary": 100,  # 50,500 parameters
    "eval.sample": 60,
    "eval.every": 2,
    "eval.last_every": 2,
    "checkpoint.every": 1,
    "patience": 1,
}
GRID = "client_lr=1|2|38, server_lr=0, tau=-2"  # a rate of 10^38 diverges in the first round
SQUARE = "client_lr=0|2, server_lr=-1|1, tau=-2"


def sweep_words(
    *more: str | Path,
    grid: str | Path = GRID,
    algorithm: str = "fedavg",
    rounds: int = ROUNDS,
    **changes: Any,
) -> list[str]:
    """The arguments of `fedopt sweep`; client__steps=2 becomes --set client.steps=2."""
    settings = SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ["sweep", "so_lr", "--algorithm", algorithm, "--grid", grid, "--rounds", rounds, *sets, *more]
    return [str(word) for word in words]


def run_sweep(out: Path, *more: str | Path, **changes: Any) -> dict[str, Any]:
    """Run a sweep in `out`, by default on one worker, and return its JSON summary."""
    workers = [] if "--workers" in more else ["--workers", "1"]  # a worker starts in seconds
    done = fedopt(*sweep_words("--out", out, "--json", *workers, *more, **changes))
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out)
    return result


# -- files of a sweep


def read_table(out: Path) -> list[dict[str, str]]:
    with open(out / "sweep.csv") as file:
        return list(csv.DictReader(file))


def read_info(trial: Path) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((trial / "run.json").read_text())
    return info


def read_losses(trial: Path) -> list[float]:
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["split"] == "train"]


def find_trials(out: Path) -> dict[str, Path]:
    """The directories of trials by algorithm and client rate, from the table."""
    return {
        f"{row['algorithm']} {float(row['client_lr']):g}": out / row["directory"].split()[0]
        for row in read_table(out)
    }


def read_states(out: Path) -> dict[str, tuple[str, Any]]:
    """Trial -> status and checksum of its model."""
    infos = {path.name: read_info(path) for path in (out / "trials").iterdir()}
    return {name: (info["status"], info.get("x_sha256")) for name, info in infos.items()}


def modification_times(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("trials/*/*") if path.is_file()}


def recorded_rounds(out: Path) -> int:
    return sum(file.read_bytes().count(b'"train"') for file in out.glob("trials/*/metrics.jsonl"))


def run_command_of(trial: Path, out: Path) -> dict[str, Any]:
    """Run the command in run.json, in another directory, and return its JSON summary."""
    words = shlex.split(read_info(trial)["command"])
    assert words[:2] == ["fedopt", "run"] and Path(words[words.index("--out") + 1]) == trial
    words[words.index("--out") + 1] = str(out)
    done = fedopt(*words[1:], "--executor", "serial", "--json")
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out)
    return result


# -- processes


@contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The real command in a process group of its own. SIGHUP ends it, even if the tests run under nohup."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedopt", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError("timeout")


def worker_pids(process: subprocess.Popen[str]) -> list[int]:
    """The worker processes of a sweep, or the server that forks them: children of multiprocessing."""
    starts, pids = (b"spawn_main", b"forkserver"), []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
            if parent == process.pid and any(start in command for start in starts):
                pids.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue  # not a process, or it has ended
    return pids


def group_pids(process: subprocess.Popen[str]) -> list[int]:
    """The processes in the command's process group, without zombies."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) == process.pid and state != "Z":
            pids.append(int(entry.name))
    return pids
