"""A short form of `make soak`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parent.parent / "benchmarks" / "soak.py"


def test_killed_and_disturbed_runs_and_imports_give_the_same_results() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "6", "--cases", "run fedyogi,import"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    found = re.fullmatch(r"(\d+) kills, (\d+) faults, 0 differences", done.stdout.splitlines()[-1])
    assert found and int(found[1]) >= 1 and int(found[2]) >= 1, done.stdout
