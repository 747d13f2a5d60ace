"""Commands on run directories and stores at URLs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from object_store import read_all, remote
from typed import fedopt


def small(*words: str | Path) -> list[str | Path]:
    return [*words, "--executor", "serial", "--json"]


def run(url: str, rounds: int) -> dict[str, object]:
    words = ["run", "synthetic_lr", "--rounds", str(rounds), "--set", "checkpoint.every=1", "--out", url]
    done = fedopt(*small(*words))
    assert done.code == 0, done.err
    document: dict[str, object] = json.loads(done.out)
    return document


def test_run_resume_report_and_eval_take_urls(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    first = run(memory, 1)
    assert first["run"] == memory
    assert json.loads(fedopt(*small("resume", memory)).out)["x_sha256"] == first["x_sha256"]
    longer = run(memory, 2)
    assert json.loads(fedopt(*small("eval", memory)).out)["round"] == 2
    done = fedopt("report", memory, "--output", "page.html")
    assert (done.code, done.out.strip()) == (0, "page.html")
    assert longer["algorithm"] in Path("page.html").read_text()
    assert not Path("memory:").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "synthetic_lr", "--algorithms", "fedavg"],
        ["sweep", "synthetic_lr", "--algorithm", "fedavg", "--grid", "client_lr=-1:0:1"],
        ["run", "synthetic_lr", "--seeds", "0:2"],
    ],
)
def test_commands_with_several_runs_refuse_urls(
    words: list[str], memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    done = fedopt(*words, "--rounds", "1", "--out", memory)
    assert done.code == 2
    assert done.err.count("error: ") == 1 and memory in done.err
    assert list(tmp_path.iterdir()) == [] and read_all(memory) == {}


@pytest.mark.parametrize(
    "words",
    [["resume"], ["report"], ["eval"], ["compare", "synthetic_lr", "--algorithms", "fedavg", "--out"]],
)
def test_url_without_a_host_keeps_its_slashes(words: list[str]):
    """The file system is not installed, or the command refuses URLs."""
    done = fedopt(*words, "nowhere:///user/run")
    assert done.code == 2
    [line] = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert "nowhere:///user/run" in line


def test_url_of_a_damaged_run_is_named_in_the_error(memory: str, tmp_path: Path):
    run(memory, 1)
    remote(memory).write("run.json", b"{")
    done = fedopt("resume", memory)
    assert done.code == 2
    assert f"error: {memory}/run.json" in done.err
