"""The command `fedopt watch` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from typed import FinishedRun, fedopt, refused


def test_watch_prints_its_address_and_ends_quietly_with_ctrl_c(finished_run: FinishedRun) -> None:
    command = [sys.executable, "-m", "fedopt", "watch", str(finished_run.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=20) as page:
            assert b'id="metric-by-round"' in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "Ctrl-C ends the page. The runs continue.\n"
    finally:
        process.kill()
        process.communicate()


def test_watch_refuses_a_missing_directory(tmp_path: Path) -> None:
    refused(fedopt("watch", str(tmp_path / "nothing")), "is not a directory")
