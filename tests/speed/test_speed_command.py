"""`python -m benchmarks.speed`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from speed.__main__ import main, measure
from speed.measure_task import SpeedOptions
from typed import message_lines

from fedopt.errors import ConfigError, UnknownName

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


ROOT = Path(__file__).resolve().parents[2]


def run_speed(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )


def test_small_benchmark_prints_json_and_reports_absent_peers(tmp_path):
    shutil.copytree(ROOT / "benchmarks" / "speed", tmp_path / "benchmarks" / "speed")  # without environments
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    small = ["--clients", "2", "--steps", "1", "--repeats", "2", "--workers", "1", "--against", "pfl"]
    process = run_speed("emnist_ae", *small, "--write", "page.md", "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert list(result["tasks"]) == ["emnist_ae"]
    numbers = result["tasks"]["emnist_ae"]
    assert numbers["ratio"] == {} and numbers["peers"] == {}
    assert numbers["absent"] == {"pfl": "not installed; python benchmarks/peers/setup.py pfl"}
    assert process.stderr.count("python benchmarks/peers/setup.py pfl") == 1
    assert numbers["rounds_per_s"] == pytest.approx(1 / numbers["seconds"])
    assert numbers["steps_per_s"] == pytest.approx(2 / numbers["seconds"])
    assert (numbers["steps_per_client"], numbers["examples_per_client"]) == ([1, 1], [20, 20])
    assert numbers["cut"] and numbers["repeats"] == 2 and numbers["peak_memory_kind"] == "PSS"
    low, high = numbers["gemm_share_range"]
    assert 0 < low <= numbers["gemm_share"] <= high
    assert 0 < numbers["waiting_share"] < numbers["engine_share"] < 1
    page = (tmp_path / "page.md").read_text()
    assert page.startswith(f"before\n{BEGIN}\n") and page.endswith(f"\n{END}\nafter\n")
    assert "| emnist_ae\\* |" in page and "old" not in page


def test_unknown_peer_is_reported_in_one_line():
    process = run_speed("--against", "tff")
    assert (process.returncode, process.stdout) == (2, "")
    assert message_lines(process.stderr) == ["error: unknown peer 'tff'; allowed: pfl, fedjax, flower"]


@pytest.mark.parametrize(
    ("task", "options", "error", "fields"),
    [
        ("emnist", {}, UnknownName, {"kind": "task", "name": "emnist"}),
        ("so_lr", {"repeats": 0}, ConfigError, {"keys": ("repeats",)}),
        ("so_lr", {"workers": 0}, ConfigError, {"keys": ("workers",)}),
        ("so_lr", {"steps": -1}, ConfigError, {"keys": ("steps",)}),
    ],
)
def test_invalid_arguments_are_rejected_before_measuring(task, options, error, fields):
    with pytest.raises(error) as caught:
        measure([task], SpeedOptions(**options), print)
    assert {name: getattr(caught.value, name) for name in fields} == fields


def test_missing_document_is_rejected_before_measuring(capsys):
    assert main(["so_lr", "--write", "none.md"]) == 2
    assert len(message_lines(capsys.readouterr().err)) == 1
