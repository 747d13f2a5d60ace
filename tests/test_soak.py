"""A short form of `make soak`, and what counts as a difference there."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from soak import Soak
from soak_contracts import Contract
from soak_faults import flip_bit

SOAK = Path(__file__).parent.parent / "benchmarks" / "soak.py"


def test_killed_and_disturbed_runs_and_imports_give_the_same_results() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "6", "--cases", "run fedyogi,import"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    found = re.fullmatch(r"(\d+) kills, (\d+) faults, 0 differences", done.stdout.splitlines()[-1])
    assert found and int(found[1]) >= 1 and int(found[2]) >= 1, done.stdout


BEHAVIOUR = {  # what a command does when its file has been damaged -> whether that is a difference
    "ignores it": ("print('done')", False),
    "refuses with one line": ("os.write(2, b'error: the file is damaged\\n'); sys.exit(2)", False),
    "fails without a line": ("sys.exit(1)", True),
    "fails with a traceback": ("os.write(2, b'Traceback\\nerror: x\\n'); sys.exit(1)", True),
    "fails with another exit code": ("os.write(2, b'error: x\\n'); sys.exit(3)", True),
    "gives another result": ("(out / 'result').write_text('5')", True),
}


@pytest.mark.parametrize("case", BEHAVIOUR)
def test_only_an_equal_result_or_one_line_keeps_the_contract(case: str, tmp_path: Path) -> None:
    code, is_difference = BEHAVIOUR[case]

    def run(out: Path) -> None:
        if (out / "damaged").exists():
            exec(code, {"os": os, "sys": sys, "out": out})

    def damage(out: Path, generator: random.Random) -> str:
        (out / "damaged").touch()
        return "a test"

    contract = Contract(
        "test",
        "damage",
        run,
        result=lambda out: {"result": (out / "result").read_text()},
        prepare=lambda out: (out / "result").write_text("4"),
        disturb=damage,
    )
    soak = Soak(tmp_path, seed=0, seconds=60)
    soak.check(contract)
    assert (soak.differences, soak.faults["damage"]) == (int(is_difference), 1)


def test_one_bit_of_one_file_flips(tmp_path: Path) -> None:
    content = {"a": bytes(100), "b": bytes(range(200)), "empty": b""}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in content}
    flip_bit(tmp_path, random.Random(0), keep_times=True)
    after = {name: (tmp_path / name).read_bytes() for name in content}
    changes = [x ^ y for name in content for x, y in zip(content[name], after[name], strict=True) if x != y]
    assert len(changes) == 1 and changes[0].bit_count() == 1
    assert times == {name: (tmp_path / name).stat().st_mtime_ns for name in content}
