"""A changed bit in any file of a run directory gives the same result or an error of one line.

Lines of metrics.jsonl after the newest checkpoint have no checksum: they are run again when the run resumes.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from written import read_info, remove_checksums

import fedopt
from fedopt.errors import FedoptError, ResumeWarning, RunDirectoryError
from fedopt.runs.records import read_run

FLIPS = int(os.environ.get("FUZZ_EXAMPLES", "25"))  # of each run
CONFIG = {
    "clients_per_round": 2,
    "client.steps": 1,
    "eval.sample": 20,
    "checkpoint.every": 2,
    "data.clients": 4,
}
STATES = ("done", "stopped", "killed")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of SCAFFOLD: finished, stopped after round 3, and killed after round 2."""
    root = tmp_path_factory.mktemp("runs")

    def run(name: str, callback: Callable[[fedopt.Step], Any]) -> None:
        fedopt.run("synthetic_lr", "scaffold", rounds=4, config=CONFIG, out=root / name, callback=callback)

    def copy_killed(step: fedopt.Step) -> None:  # what a kill leaves behind
        if step.position.round == 2:
            shutil.copytree(root / "done", root / "killed", ignore=shutil.ignore_patterns(".lock"))

    run("done", copy_killed)
    run("stopped", lambda step: fedopt.STOP if step.position.round == 3 else None)
    return root


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def read(run: Path) -> Any:
    record = read_run(run)
    lines = without_times(record.train + record.test)
    return record.status, record.config, lines, record.clients, record.info.get("value")


def load(run: Path) -> Any:
    loaded = fedopt.load(run)
    return loaded.round, loaded.x.tolist()


def resume(run: Path) -> Any:
    result = fedopt.resume(run)
    return result.x_sha256, result.value, without_times(result.train + result.test)


READERS: dict[str, Callable[[Path], Any]] = {"read": read, "load": load, "resume": resume}


def observed(reader: str, source: Path, target: Path, file: Path | None = None, bit: int = 0) -> Any:
    """What a reader returns for a copy of a run with one changed bit; None after an error or a warning."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    if file is not None:
        data = bytearray((target / file).read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        (target / file).write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResumeWarning)
            return READERS[reader](target)
    except (FedoptError, ResumeWarning) as error:
        assert "\n" not in str(error)
        return None


@pytest.mark.parametrize("state", STATES)
def test_flipped_bits_change_no_result_silently(state: str, runs: Path, tmp_path: Path) -> None:
    source, generator = runs / state, random.Random(state)
    expected = {reader: observed(reader, source, tmp_path / "run") for reader in READERS}
    assert None not in expected.values()
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and file.stat().st_size]
    found = 0
    for _ in range(FLIPS):
        file = generator.choice(files)
        bit = generator.randrange(8 * file.stat().st_size)
        for reader, before in expected.items():
            after = observed(reader, source, tmp_path / "run", file.relative_to(source), bit)
            assert after in (None, before), (file, bit, reader)
            found += after is None
    assert found


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))


def refused(run: Path) -> None:
    """No command believes the run, and none changes it."""
    before = {file: file.read_bytes() for file in sorted(run.rglob("*")) if file.is_file()}
    for reader in (read_run, fedopt.resume):
        with pytest.raises(RunDirectoryError) as caught:
            reader(run)
        assert caught.value.path == run and "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in sorted(run.rglob("*")) if file.is_file()} == before


@pytest.mark.parametrize("state", STATES)
def test_changed_rate_in_the_configuration_is_refused(state: str, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / state, tmp_path / "run")
    lr = read_run(run).config["client"]["lr"]
    replace(run / "config.toml", f"lr = {lr}", f"lr = {9 * lr}")
    refused(run)
    with pytest.raises(RunDirectoryError):
        fedopt.load(run)


def test_checkpoints_are_not_continued_with_another_configuration(runs: Path, tmp_path: Path) -> None:
    """Also if run.json agrees with the changed configuration."""
    run = shutil.copytree(runs / "stopped", tmp_path / "run")
    other = fedopt.run(
        "synthetic_lr", "scaffold", rounds=4, config=CONFIG | {"client.lr": 9.0}, out=tmp_path / "b"
    )
    assert other.path is not None
    for name in ("config.toml", "run.json", "metrics.jsonl"):
        shutil.copy(other.path / name, run / name)
    for reader in (fedopt.load, fedopt.resume):
        with pytest.raises(RunDirectoryError):
            reader(run)


def test_changed_number_of_rounds_is_allowed_and_reported(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "done", tmp_path / "run")
    replace(run / "config.toml", "rounds = 4", "rounds = 5")
    assert read_run(run).config["rounds"] == 4  # of the results
    with pytest.warns(ResumeWarning, match="rounds"):
        resumed = fedopt.resume(run)
    longer = fedopt.run("synthetic_lr", "scaffold", rounds=5, config=CONFIG)
    assert resumed.x_sha256 == longer.x_sha256
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        fedopt.resume(run)  # once


METRICS: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda data: bytes(len(data)),
    "no bytes": lambda data: b"",
    "another digit": lambda data: data.replace(b'"loss": 2', b'"loss": 3', 1),
    "an early evaluation is lost": lambda data: b"".join(data.splitlines(keepends=True)[1:]),
    "a later line is lost": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
}


@pytest.mark.parametrize("damage", METRICS)
@pytest.mark.parametrize("state", STATES)
def test_damaged_metrics_are_refused(state: str, damage: str, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / state, tmp_path / "run")
    file = run / "metrics.jsonl"
    before = file.read_bytes()
    file.write_bytes(METRICS[damage](before))
    assert file.read_bytes() != before
    refused(run)


@pytest.mark.parametrize("key", ["clients", "ids", "examples"])
def test_damaged_fingerprint_without_a_checksum_is_refused(key: str, tmp_path: Path) -> None:
    """Runs of version 0.2.0 have no checksum of run.json."""

    clients = {"a": (torch.eye(2), torch.tensor([0, 1])), "b": (torch.eye(2), torch.tensor([0, 1]))}
    task = fedopt.own_task(torch.nn.Linear(2, 2), torch.nn.functional.cross_entropy, clients, clients["a"])
    fedopt.run(task, rounds=1, out=tmp_path / "run")
    fingerprint = read_info(tmp_path / "run")["fingerprint"]
    fingerprint["train"]["x" + key] = fingerprint["train"].pop(key)
    remove_checksums(tmp_path / "run", fingerprint=fingerprint)
    with pytest.raises(RunDirectoryError) as caught:
        fedopt.run(task, rounds=2, out=tmp_path / "run")
    assert caught.value.path == tmp_path / "run" and "\n" not in str(caught.value)


def test_statistics_of_a_client_are_verified_in_evaluations(tmp_path: Path) -> None:

    generator = torch.Generator().manual_seed(0)
    clients = {name: (torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for name in "ab"}
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    task = fedopt.own_task(model, torch.nn.functional.cross_entropy, clients, clients["a"])
    fedopt.run(task, rounds=2, buffers="local", out=tmp_path / "run")
    fedopt.evaluate(tmp_path / "run", "train", task=task)
    row = sorted((tmp_path / "run" / "clients").iterdir())[-1]
    save_file({name: vector + 1 for name, vector in load_file(row).items()}, row)
    with pytest.raises(RunDirectoryError) as caught:
        fedopt.evaluate(tmp_path / "run", "train", task=task)
    assert caught.value.path == row
