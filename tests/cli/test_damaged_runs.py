"""Damaged run directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typed import FinishedRun, fedopt, refused, run_small, temporary_files
from written import read_lines, remove_checksums


def flip_a_bit(file: Path, at: int = -5) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def flip_the_round(file: Path) -> None:
    flip_a_bit(file, file.read_bytes().index(b'"round": 3') + len(b'"round": '))  # 3 becomes 2


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a bit of the state": lambda at: flip_a_bit(at / "state.safetensors"),
    "a bit of the state's header": lambda at: flip_a_bit(at / "state.safetensors", 20),
    "half of the state": lambda at: (at / "state.safetensors").write_bytes(b"\0" * 1000),
    "no state": lambda at: (at / "state.safetensors").unlink(),
    "a bit of the position": lambda at: flip_the_round(at / "position.json"),
    "half of the position": lambda at: (at / "position.json").write_text('{"round": 3,'),
    "a position that is none": lambda at: (at / "position.json").write_text("[]"),
    "no position": lambda at: (at / "position.json").unlink(),
    "an empty directory": lambda at: [file.unlink() for file in at.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_command_uses_the_previous_checkpoint_if_the_newest_is_damaged(
    damage: str, run_copy: Path, finished_run: FinishedRun
) -> None:
    """The round that is lost with it is run again, and the result is the same."""
    DAMAGE[damage](run_copy / "checkpoints" / "000003")
    done = run_small(run_copy)
    assert done.code == 0, done.err
    assert "000003 is damaged" in done.err
    assert "continuing after round 2" in done.err
    assert {**json.loads(done.out), "run": "", "seconds": 0} == {
        **finished_run.summary,
        "run": "",
        "seconds": 0,
    }
    assert [line["round"] for line in read_lines(run_copy, "train")] == [1, 2, 3]
    assert temporary_files(run_copy) == []


@pytest.mark.parametrize("damage", ["a bit of the state", "half of the position"])
def test_run_without_intact_checkpoint_is_refused(damage: str, run_copy: Path) -> None:
    for checkpoint in (run_copy / "checkpoints").iterdir():
        DAMAGE[damage](checkpoint)
    metrics = (run_copy / "metrics.jsonl").read_bytes()
    refused(run_small(run_copy), str(run_copy), "damaged", "no other")
    assert (run_copy / "metrics.jsonl").read_bytes() == metrics  # nothing is thrown away


def test_eval_and_export_refuse_a_damaged_checkpoint(run_copy: Path) -> None:
    flip_a_bit(run_copy / "checkpoints" / "000003" / "state.safetensors")
    refused(fedopt("eval", run_copy, "--executor", "serial"), "000003", "damaged")
    refused(fedopt("export", run_copy), "000003", "damaged")
    assert not (run_copy / "export").exists()


def test_metrics_after_the_checkpoint_are_removed(run_copy: Path, finished_run: FinishedRun) -> None:
    with open(run_copy / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "split": "train", "loss": 1.0}\n{"round": 4, "spl')
    done = run_small(run_copy, rounds=4)
    assert done.code == 0, done.err
    assert [line["round"] for line in read_lines(run_copy, "train")] == [1, 2, 3, 4]
    assert read_lines(run_copy, "train")[-1]["loss"] != 1.0


METRICS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) // 2], "the line of round 2 is missing"),
    "empty": (lambda data: b"", "the line of round 1 is missing"),
    "a line that is none": (lambda data: data.replace(b'{"round": 2', b'X"round": 2', 1), "metrics.jsonl:4"),
    "a line without a round": (lambda data: data.replace(b'"round": 2', b'"rounD": 2', 1), "metrics.jsonl:4"),
    "bytes that are no text": (
        lambda data: data.replace(b"train", b"\xff\xfe\xfd\xfc\xfb", 1),
        "metrics.jsonl:2",
    ),
}


@pytest.mark.parametrize("damage", METRICS)
@pytest.mark.parametrize("rounds", [3, 4])
def test_damaged_metrics_are_refused_with_file_and_line(damage: str, rounds: int, run_copy: Path) -> None:
    change, word = METRICS[damage]
    file = run_copy / "metrics.jsonl"
    file.write_bytes(change(file.read_bytes()))
    before = file.read_bytes()
    refused(run_small(run_copy, rounds=rounds), str(file), word)
    assert file.read_bytes() == before


WORDS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "bytes that are no text": lambda data: b"\xff\xfe" + data,
    "zeros": lambda data: b"\0" * len(data),
    "something else": lambda data: b"[]",
}


@pytest.mark.parametrize("damage", WORDS)
@pytest.mark.parametrize("name", ["config.toml", "run.json"])
def test_damaged_config_and_info_are_refused_with_the_file(name: str, damage: str, run_copy: Path) -> None:
    file = run_copy / name
    file.write_bytes(WORDS[damage](file.read_bytes()))
    before = file.read_bytes()
    refused(run_small(run_copy), str(file))
    refused(fedopt("export", run_copy), str(file))
    assert file.read_bytes() == before


@pytest.mark.parametrize("lost", ["status", "rounds", "metric", "data", "command"])
def test_run_json_without_an_entry_is_refused_or_repaired(
    lost: str, run_copy: Path, finished_run: FinishedRun
) -> None:
    """Version 0.2.0 did not write a checksum of run.json."""
    remove_checksums(run_copy)
    file = run_copy / "run.json"
    info = json.loads(file.read_text())
    del info[lost]
    file.write_text(json.dumps(info))
    done = run_small(run_copy)
    if done.code == 0:
        assert json.loads(done.out)["x_sha256"] == finished_run.summary["x_sha256"]
    else:
        refused(done, str(file), lost)
    card = fedopt("export", run_copy)
    if card.code:
        refused(card, str(file), lost)


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json"])
def test_missing_file_is_named(name: str, run_copy: Path) -> None:
    (run_copy / name).unlink()
    refused(run_small(run_copy), str(run_copy), name)
