"""Output to pipes and devices that accept no more text, and in other encodings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typed import small_command

from fedopt.cli.streams import StandardStreams

COMMAND = [sys.executable, "-m", "fedopt"]


def run_shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which `fedopt` is the command. The exit code is that of the part that failed."""
    function = f'fedopt() {{ {" ".join(COMMAND)} "$@"; }}; set -o pipefail; {line}'
    return subprocess.run(
        ["bash", "-c", function], capture_output=True, timeout=120, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_ends_a_command_quietly(unbuffered: str) -> None:
    done = run_shell("fedopt run --help | true", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (141, b"")  # 128 + SIGPIPE, as for other programs


@pytest.mark.parametrize(("words", "unbuffered"), [("--version", "1"), ("run --help", "")])
def test_full_device_is_reported_in_one_line(words: str, unbuffered: str) -> None:
    done = run_shell(f"fedopt {words} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "failed: cannot write to standard output: No space left on device"
    ]


def test_run_is_interrupted_if_nobody_reads_its_messages(tmp_path: Path) -> None:
    """Like any program at the end of its pipe. The run can be resumed."""
    words = " ".join(map(str, small_command("run", "--rounds", "30", "--out", tmp_path / "run")))
    done = run_shell(f"fedopt {words} 2>&1 | head -3")  # two lines of heading, then round 0
    assert (done.returncode, done.stderr) == (141, b"")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


def test_run_ends_normally_if_standard_error_is_closed(tmp_path: Path) -> None:
    words = " ".join(map(str, small_command("run", "--rounds", "2", "--json", "--out", tmp_path / "run")))
    done = run_shell(f"fedopt {words} 2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["rounds"] == 2


def test_messages_that_cannot_be_written_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        with StandardStreams() as streams:
            for _ in range(2):
                print("progress", file=sys.stderr, flush=True)
        assert streams.exit_code is None


def test_directory_may_have_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    words = " ".join(map(str, small_command("run", "--rounds", "1", "--out")))
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    quoted = f"'{tmp_path}/caf'$'\\xe9'"
    done = run_shell(f"fedopt {words} {quoted} && fedopt report {quoted}", LC_ALL="C.UTF-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == name + b"/report.html"
    assert os.path.getsize(name + b"/report.html") > 10_000


def test_ascii_locale_is_supported() -> None:
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run_shell("fedopt tasks", **plain)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii() and b"so_lr" in done.stdout
