"""The examples are run as a reader would run them, with every warning an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def output_of(example: str, directory: Path) -> str:
    """What the example prints; it must end well and say nothing else."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example)],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(directory.iterdir()) == []  # an example leaves nothing behind
    return done.stdout


def test_every_example_is_run_here() -> None:
    assert all(file.name in Path(__file__).read_text() for file in EXAMPLES.glob("*.py"))


def test_the_quickstart_learns_to_tell_the_moons_apart(tmp_path: Path) -> None:
    # A straight line separates two such moons for 87 % of the points: above 95 % the network is at work.
    accuracies = [
        float(value) for value in re.findall(r"accuracy (\d\.\d+)", output_of("quickstart.py", tmp_path))
    ]
    assert accuracies[0] < 0.7
    assert accuracies[-1] > 0.95


def test_my_algorithm_beats_fedavg_where_most_features_are_rare(tmp_path: Path) -> None:
    lines = output_of("my_algorithm.py", tmp_path).splitlines()
    accuracy = {line.split()[0]: float(line.split()[-1]) for line in lines}
    assert list(accuracy) == ["fedavg", "fedsign"]
    assert accuracy["fedsign"] > accuracy["fedavg"] + 0.03
    assert accuracy["fedavg"] > 0.8  # and FedAvg was given a fair chance


@pytest.mark.parametrize("example", ["quickstart.py", "my_algorithm.py"])
def test_an_example_can_be_read_in_one_glance(example: str) -> None:
    lines = [line for line in (EXAMPLES / example).read_text().splitlines() if line.strip()]
    code = [line for line in lines if not line.lstrip().startswith(("#", '"""', "import", "from"))]
    assert len(code) <= 30
