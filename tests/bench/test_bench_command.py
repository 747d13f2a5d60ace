"""`fedopt bench` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typed import message_lines

from fedopt.cli.app import app
from fedopt.errors import ConfigError, DataError, UnknownName

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def run_fedopt(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedopt", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_small_benchmark_prints_json_and_reports_absent_peers(tmp_path):
    (tmp_path / "benchmarks" / "peers").mkdir(parents=True)
    (tmp_path / "benchmarks" / "peers" / "setup.py").write_text("")  # a repository without environments
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    small = ["--clients", "2", "--steps", "1", "--repeats", "2", "--workers", "1", "--against", "pfl"]
    process = run_fedopt("bench", "emnist_ae", *small, "--write", "page.md", "--json", cwd=tmp_path)
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


def test_unknown_peer_is_reported_in_one_line(tmp_path):
    process = run_fedopt("bench", "--against", "tff", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, "")
    assert message_lines(process.stderr) == ["error: unknown peer 'tff'; allowed: pfl, fedjax, flower"]


@pytest.mark.parametrize(
    ("arguments", "error", "fields"),
    [
        (["emnist"], UnknownName, {"kind": "task", "name": "emnist"}),
        (["so_lr", "--repeats", "0"], ConfigError, {"keys": ("repeats",)}),
        (["so_lr", "--steps", "-1"], ConfigError, {"keys": ("steps",)}),
        (["so_lr", "--write", "none.md"], DataError, {"path": Path("none.md")}),
    ],
)
def test_invalid_arguments_are_rejected_before_measuring(arguments, error, fields):
    with pytest.raises(error) as caught:
        app(["bench", *arguments], standalone_mode=False)
    assert {name: getattr(caught.value, name) for name in fields} == fields
