"""A full disk ends a run with one line and a status. The run resumes when there is space again."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_cases import train
from small_disk import fill, mounted
from written import read_info, read_lines

from fedopt.engine.loop import Step
from fedopt.errors import DiskError
from fedopt.runs.records import read_run

ROUNDS = 40  # metrics.jsonl needs several pages


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 1024) as path:
        yield path


def after_round(last: int, act: Callable[[], Any]) -> Callable[[Step], None]:
    def on_step(step: Step) -> None:
        if step.position.round == last:
            act()

    return on_step


CASES = {
    "metrics": ("fedyogi", {"checkpoint.every": 1000}),
    "checkpoint": ("fedyogi", {"checkpoint.every": 4}),
    "client rows": ("scaffold", {"checkpoint.every": 4}),
}


@pytest.mark.parametrize("case", CASES)
def test_run_on_a_full_disk_records_its_failure_and_resumes(case: str, disk: Path) -> None:
    algorithm, settings = CASES[case]
    settings = settings | {"rounds": ROUNDS}
    out = disk / "run"
    with pytest.raises(DiskError) as caught:
        train(algorithm, out, settings=settings, on_step=after_round(5, lambda: fill(disk)))
    assert caught.value.path is not None and out in caught.value.path.parents
    assert str(caught.value).count("\n") == 0 and "No space left" in str(caught.value)
    info = read_info(out)
    assert (info["status"], info["message"]) == ("failed", str(caught.value))
    assert (out / "metrics.jsonl").read_bytes().endswith(b"\n"), "no part of a line"
    (disk / ".filler").unlink()
    assert (
        train(algorithm, out, settings=settings).x_sha256
        == train(algorithm, None, settings=settings).x_sha256
    )
    rounds = [line["round"] for line in read_lines(out, "train")]
    assert rounds == list(range(1, ROUNDS + 1))
    assert sorted(path.name for path in out.rglob(".*")) == [".lock"]


def test_interrupt_on_a_full_disk_is_recorded(disk: Path) -> None:
    """The checkpoint of the last round does not fit; the run continues from the one before."""
    out, settings = disk / "run", {"rounds": 8, "checkpoint.every": 3}

    def fill_and_interrupt() -> None:
        fill(disk)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("fedyogi", out, settings=settings, on_step=after_round(5, fill_and_interrupt))
    assert read_info(out)["status"] == "interrupted"
    (disk / ".filler").unlink()
    messages: list[str] = []
    resumed = train("fedyogi", out, settings=settings, log=messages.append)
    assert "continuing after round 3" in messages
    assert resumed.x_sha256 == train("fedyogi", None, settings=settings).x_sha256


def test_limit_of_the_file_size_is_reported_like_a_full_disk(tmp_path: Path) -> None:
    out, settings = tmp_path / "run", {"rounds": ROUNDS, "checkpoint.every": 1000}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python reports an error instead"
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(DiskError) as caught:
            train("fedyogi", out, settings=settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.path == out / "metrics.jsonl"
    assert read_info(out)["status"] == "failed"
    assert (
        train("fedyogi", out, settings=settings).x_sha256
        == train("fedyogi", None, settings=settings).x_sha256
    )


def test_status_of_a_killed_run_is_killed(tmp_path: Path) -> None:
    """run.json still says running. Readers see that no process has the lock."""
    out = tmp_path / "run"
    seen: list[str] = []
    process = os.fork()
    if process == 0:
        train("fedyogi", out, on_step=after_round(3, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert (read_info(out)["status"], read_run(out).status) == ("running", "killed")
    train("fedyogi", out, on_step=after_round(4, lambda: seen.append(read_run(out).status)))
    assert (seen, read_run(out).status) == (["running"], "done")
