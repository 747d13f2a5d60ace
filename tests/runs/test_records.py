"""Reading run directories, intact and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from written import write_lines, write_run

from fedopt.errors import RunDirectoryError
from fedopt.runs.records import config_differences, read_run


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")
    assert (record.label, record.metric, record.rounds) == ("fedavg", "accuracy", 4)
    assert record.curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.5, 0.7])
    assert record.curve("train", "bytes_total") == ([1, 2, 3, 4], [1e7, 2e7, 3e7, 4e7])


def test_curve_has_only_finite_numbers(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, None, 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    assert read_run(run).curve("train", "loss") == ([2, 4], [2.0, 300.0])


def test_last_evaluation_without_a_finite_value_is_not_replaced_by_an_earlier_one(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run", values=(0.1, 0.5, 0.7))
    assert record.last_evaluation == (4, 0.7)
    record.test[-1]["accuracy"] = None
    assert record.last_evaluation == (4, None)
    assert record._replace(test=record.test[:1]).last_evaluation == (0, None)  # before training


@pytest.mark.parametrize(
    ("kept", "status", "message"),
    [
        ([1, 2, 4], "running", "round 3 is missing"),
        ([2, 3, 4], "done", "round 1 is missing"),
        ([1, 2], "done", "round 3 is missing"),
        ([], "done", "round 1 is missing"),
    ],
)
def test_metrics_with_missing_rounds_are_refused(
    tmp_path: Path, kept: list[int], status: str, message: str
) -> None:
    run = write_run(tmp_path / "run", status=status).path
    write_lines(run, [{"round": t, "split": "train", "loss": 1.0} for t in kept])
    with pytest.raises(RunDirectoryError, match=message):
        read_run(run)


def test_string_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run").path
    write_lines(run, [{"round": 1, "split": "train", "loss": "x"}])
    with pytest.raises(RunDirectoryError, match="metrics.jsonl:1: damaged line: 'loss'"):
        read_run(run)


def test_incomplete_last_line_is_ignored_and_repeated_rounds_count_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running").path
    lines = [(0, 0.1), (2, 0.5), (4, 0.7), (2, 0.55)]
    as_lines = [{"round": t, "split": "test", "accuracy": value} for t, value in lines]
    write_lines(run, as_lines, end='{"round": 6, "split": "te')
    assert read_run(run).curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.55, 0.7])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics.jsonl", b'{"round": 1, "split": ""}\n{"round": 2, "sp\n{}\n', "metrics.jsonl:2: damaged"),
        ("metrics.jsonl", b"[1]\n", "metrics.jsonl:1: damaged line: expected a JSON object"),
        ("metrics.jsonl", b'{"round": true, "split": "test"}\n', "metrics.jsonl:1: damaged line: 'round'"),
        ("metrics.jsonl", b'{"round": 1}\n', "metrics.jsonl:1: damaged line: 'split'"),
        ("metrics.jsonl", b"\0\0\0\n", "metrics.jsonl:1: damaged"),
        ("metrics.jsonl", b"\xff\xfe\xfd\n", "metrics.jsonl:1: damaged"),
        ("metrics.jsonl", None, "metrics.jsonl is missing"),
        ("run.json", b'{"task":\n', "run.json:2: damaged"),
        ("run.json", b"3", "run.json: expected one JSON object"),
        ("run.json", b'{"task": "emnist_cr"}', "run.json: 'algorithm' is missing"),
        ("run.json", b"\xff\xfe\xfd", "run.json: damaged"),
        ("run.json", None, "run.json is missing"),
        ("config.toml", b"seed = \n", "config.toml: damaged: Invalid value (at line 1"),
        ("config.toml", b"\xff\xfe\xfd", "config.toml: damaged"),
        ("config.toml", None, "config.toml is missing"),
        (".", None, "no run directory at "),
    ],
)
def test_damage_is_reported_with_the_file_in_one_line(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    target = write_run(tmp_path / "run").path / file
    if content is not None:
        target.write_bytes(content)
    elif target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(RunDirectoryError) as caught:
        read_run(tmp_path / "run")
    assert caught.value.path == tmp_path / "run"
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_differences_have_dotted_keys_and_only_different_values(tmp_path: Path) -> None:
    first = "seed = 0\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1\n"
    second = "seed = 1\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1.0\ntau = 1e-3\n"
    records = [write_run(tmp_path / name, config=c) for name, c in (("a", first), ("b", second))]
    assert config_differences(records) == {"seed": [0, 1], "server.tau": [None, 0.001]}
