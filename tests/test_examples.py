"""The examples run as a reader would run them, with warnings as errors."""

from __future__ import annotations

import html
import importlib
import json
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


def test_readme_shows_own_model() -> None:
    # tests/test_package.py runs the Python of the README: that of own_model.py.
    code = (EXAMPLES / "own_model.py").read_text()
    assert code in (EXAMPLES.parent / "README.md").read_text()


def last_accuracies(run: Path) -> list[float]:
    """The last accuracy of each seed, from the recorded metrics."""
    files = sorted(run.glob("seed-*/metrics.jsonl"))
    return [json.loads(file.read_text().splitlines()[-1])["accuracy"] for file in files]


def test_demo_page_begins_with_the_measured_margins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two methods, two seeds and one round of small tasks instead of demo.py's own comparisons."""
    monkeypatch.syspath_prepend(EXAMPLES)
    demo = importlib.import_module("demo")
    config = {"data.clients": 4, "clients_per_round": 2, "client.steps": 2, "eval.last_every": 1}
    parts = [
        part._replace(task=task, rounds=1, config=config, executor="serial")
        for part, task in zip(demo.PARTS, ("synthetic_lr", "synthetic_mlp"), strict=True)
    ]
    for name, value in {"PARTS": parts, "ALGORITHMS": ["fedavg", "fedadagrad"], "SEEDS": range(2)}.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path)])
    demo.main()
    page = html.unescape((tmp_path / "index.html").read_text()).replace("\xa0", " ")
    lead = re.search(r'<p class="lead">(.*?)</p>', page)
    assert lead and capsys.readouterr().out.startswith(lead.group(1))
    for part in parts:
        fedavg, fedadagrad = (
            last_accuracies(tmp_path / part.task / name) for name in ("fedavg", "fedadagrad")
        )
        first, second = (100 * (b - a) for a, b in zip(fedavg, fedadagrad, strict=True))
        half_width = 12.706 * abs(first - second) / 2  # Student's t with one degree of freedom
        assert f"{abs(first + second) / 2:.1f} ± {half_width:.1f} points of accuracy" in lead.group(1)
        assert f'href="{part.task}/report.html"' in page and (tmp_path / part.task / "report.html").is_file()
    assert "FedAdagrad" in (tmp_path / "demo.svg").read_text()


@pytest.mark.parametrize("example", ["quickstart.py", "my_algorithm.py"])
def test_example_has_at_most_30_lines_of_code(example: str) -> None:
    lines = [line for line in (EXAMPLES / example).read_text().splitlines() if line.strip()]
    code = [line for line in lines if not line.lstrip().startswith(("#", '"""', "import", "from"))]
    assert len(code) <= 30
