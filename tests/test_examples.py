"""The examples run as a reader would run them, with warnings as errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(example: str, directory: Path) -> str:
    """Run the example in `directory` and return its output."""
    process = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example)],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert list(directory.iterdir()) == []  # examples leave no files behind
    return process.stdout


def test_every_example_has_a_test() -> None:
    assert all(file.name in Path(__file__).read_text() for file in EXAMPLES.glob("*.py"))


def test_quickstart_learns_to_separate_the_moons(tmp_path: Path) -> None:
    # A linear model separates 87 % of the points, so more than 95 % needs the network.
    output = run_example("quickstart.py", tmp_path)
    accuracies = [float(value) for value in re.findall(r"accuracy (\d\.\d+)", output)]
    assert accuracies[0] < 0.7
    assert accuracies[-1] > 0.95


def test_my_algorithm_beats_fedavg_with_rare_features(tmp_path: Path) -> None:
    lines = run_example("my_algorithm.py", tmp_path).splitlines()
    accuracy = {line.split()[0]: float(line.split()[-1]) for line in lines}
    assert list(accuracy) == ["fedavg", "fedsign"]
    assert accuracy["fedsign"] > accuracy["fedavg"] + 0.03
    assert accuracy["fedavg"] > 0.8  # the baseline is well tuned


@pytest.mark.parametrize("example", ["quickstart.py", "my_algorithm.py"])
def test_example_has_at_most_30_lines_of_code(example: str) -> None:
    lines = [line for line in (EXAMPLES / example).read_text().splitlines() if line.strip()]
    code = [line for line in lines if not line.lstrip().startswith(("#", '"""', "import", "from"))]
    assert len(code) <= 30
