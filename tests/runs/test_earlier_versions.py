"""Run directories of fedopt 0.1.0 are read and continued.

`version_0_1_0` was written by fedopt 0.1.0: fedopt run shakespeare --algorithm fedyogi --rounds 4, with the
settings in its config.toml. The expected numbers are those that 0.1.0 reported for 4 and for 6 rounds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typed import fedopt, refused
from written import read_lines

from fedopt import load
from fedopt.runs.result import vector_sha256

OLD_RUN = Path(__file__).parent / "version_0_1_0"
SETTINGS = {
    "data.clients": 6,
    "clients_per_round": 3,
    "model.width": 2,
    "model.units": 4,
    "client.steps": 2,
    "eval.every": 2,
    "eval.sample": 20,
    "checkpoint.every": 2,
}


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A copy of the directory."""
    return shutil.copytree(OLD_RUN, tmp_path / "run")


def continue_run(path: Path, algorithm: str, rounds: int) -> list[str | Path]:
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words = ["--algorithm", algorithm, "--rounds", str(rounds), "--executor", "serial", "--json"]
    return ["run", "shakespeare", *words, *sets, "--out", path]


def test_continued_run_has_the_losses_of_version_0_1_0(old_run: Path) -> None:
    done = fedopt(*continue_run(old_run, "fedyogi", rounds=6))
    assert done.code == 0, done.err
    assert json.loads(done.out)["train_loss"] == pytest.approx(4.372261418236627, rel=1e-6)
    last = [line for line in read_lines(old_run) if line["split"] == "test"][-1]
    assert (last["round"], last["loss"]) == (6, pytest.approx(4.272913599014283, rel=1e-6))


def test_finished_run_is_not_repeated(old_run: Path) -> None:
    before = (old_run / "metrics.jsonl").read_bytes()
    done = fedopt(*continue_run(old_run, "fedyogi", rounds=4))
    assert done.code == 0, done.err
    assert (old_run / "metrics.jsonl").read_bytes() == before


def test_other_configuration_is_rejected_in_one_line(old_run: Path) -> None:
    refused(fedopt(*continue_run(old_run, "fedadam", rounds=6)), str(old_run))


def test_model_has_the_recorded_checksum(old_run: Path) -> None:
    recorded = json.loads((old_run / "run.json").read_text())["x_sha256"]
    assert vector_sha256(load(old_run).x) == recorded


def test_report_evaluation_and_export_read_the_run(old_run: Path, tmp_path: Path) -> None:
    assert fedopt("report", old_run, "-o", tmp_path / "report.html").code == 0
    assert "0.1.0" in (tmp_path / "report.html").read_text()
    done = fedopt("eval", old_run, "--json", "--executor", "serial")
    assert done.code == 0 and json.loads(done.out)["accuracy"] > 0
    done = fedopt("export", old_run, "--to", tmp_path / "model")
    assert done.code == 0, done.err
    assert "| parameters | 886 |" in (tmp_path / "model" / "MODEL_CARD.md").read_text()
