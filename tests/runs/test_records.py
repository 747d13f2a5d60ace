"""Reading run directories: what they hold, what damage says, and the names that tell runs apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from written import write_lines, write_run

from fedopt.errors import UserError
from fedopt.runs.records import config_differences, read_run


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")
    assert (record.label, record.metric, record.rounds) == ("fedavg", "accuracy", 4)
    assert record.curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.5, 0.7])
    assert record.curve("train", "bytes_total") == ([1, 2, 3, 4], [1e7, 2e7, 3e7, 4e7])


def test_a_curve_has_finite_numbers_only(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, None, 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    assert read_run(run).curve("train", "loss") == ([2, 4], [2.0, 300.0])


@pytest.mark.parametrize(
    ("kept", "status", "says"),
    [
        ([1, 2, 4], "running", "round 3 is missing"),
        ([2, 3, 4], "done", "round 1 is missing"),
        ([1, 2], "done", "round 3 is missing"),
        ([], "done", "round 1 is missing"),
    ],
)
def test_a_run_whose_metrics_have_holes_is_damaged(
    tmp_path: Path, kept: list[int], status: str, says: str
) -> None:
    run = write_run(tmp_path / "run", status=status).path
    write_lines(run, [{"round": t, "split": "train", "loss": 1.0} for t in kept])
    with pytest.raises(UserError, match=says):
        read_run(run)


def test_a_word_in_the_place_of_a_number_is_damage(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run").path
    write_lines(run, [{"round": 1, "split": "train", "loss": "x"}])
    with pytest.raises(UserError, match="metrics.jsonl:1: damaged line: 'loss' is 'x' and not a number"):
        read_run(run)


def test_a_half_written_last_line_is_dropped_and_a_repeated_round_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running").path
    lines = [(0, 0.1), (2, 0.5), (4, 0.7), (2, 0.55)]
    as_lines = [{"round": t, "split": "test", "accuracy": value} for t, value in lines]
    write_lines(run, as_lines, end='{"round": 6, "split": "te')
    assert read_run(run).curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.55, 0.7])


@pytest.mark.parametrize(
    ("file", "content", "says"),
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
def test_damage_is_named_in_one_line(tmp_path: Path, file: str, content: bytes | None, says: str) -> None:
    target = write_run(tmp_path / "run").path / file
    if content is not None:
        target.write_bytes(content)
    elif target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(UserError) as caught:
        read_run(tmp_path / "run")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_differences_are_dotted_and_leave_out_what_is_equal(tmp_path: Path) -> None:
    first = "seed = 0\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1\n"
    second = "seed = 1\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1.0\ntau = 1e-3\n"
    records = [write_run(tmp_path / name, config=c) for name, c in (("a", first), ("b", second))]
    assert config_differences(records) == {"seed": [0, 1], "server.tau": [None, 0.001]}
