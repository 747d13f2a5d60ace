"""Loggers: Weights & Biases, MLflow and the user's own objects."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from own_clients import assert_refused, make_task, train
from sweeps import wait_for
from typed import run_small
from written import read_lines

import fedopt
from fedopt.errors import ConfigError, MissingExtra, RunError, UnknownName
from fedopt.runs import loggers
from fedopt.runs.loggers import check_loggers

RARE_CHECKPOINTS = {"checkpoint.every": 100}


class ListLogger:
    """Keeps all calls in memory."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def start(self, config: Mapping[str, Any], directory: Path | None) -> None:
        self.calls.append(("start", (config["client.batch_size"], directory)))

    def add(self, line: Mapping[str, Any]) -> None:
        self.calls.append((line["split"], line["round"]))

    def close(self) -> None:
        self.calls.append(("close", None))


def stop_after(round: int):
    return lambda step: fedopt.STOP if step.position.round == round else None


def test_own_logger_receives_all_lines_in_order() -> None:
    logger = ListLogger()
    train(make_task(), rounds=2, log=[logger])
    lines = [("test", 0), ("train", 1), ("test", 1), ("train", 2), ("test", 2)]
    assert logger.calls == [("start", (5, None)), *lines, ("close", None)]


def test_own_logger_of_a_resumed_run_receives_the_new_lines(tmp_path: Path) -> None:
    first, second, out = ListLogger(), ListLogger(), tmp_path / "run"
    train(make_task(), rounds=3, out=out, log=[first], callback=stop_after(2), config=RARE_CHECKPOINTS)
    train(make_task(), rounds=3, out=out, log=[second], config=RARE_CHECKPOINTS)
    assert first.calls[0] == ("start", (5, out))
    assert [call for call in first.calls if call[0] == "train"] == [("train", 1), ("train", 2)]
    assert [call for call in second.calls if call[0] == "train"] == [("train", 3)]


def test_error_of_a_logger_names_it_and_the_logger_is_closed() -> None:
    class BrokenLogger(ListLogger):
        def add(self, line: Mapping[str, Any]) -> None:
            raise OSError("no\nconnection")

    logger = BrokenLogger()
    with pytest.raises(RunError) as error:
        train(make_task(), log=[logger])
    assert "BrokenLogger" in str(error.value) and "\n" not in str(error.value)
    assert logger.calls[-1] == ("close", None)


def test_unknown_loggers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(lambda: train(make_task(), log=["wanbd"]), UnknownName, name="wanbd")
    assert_refused(lambda: train(make_task(), log=[3]), ConfigError, keys=("log",))
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    assert_refused(lambda: check_loggers(["mlflow"]), MissingExtra, package="mlflow", extra="mlflow")


def read_offline_history(folder: Path) -> Iterator[dict[str, float]]:
    """The history rows in the .wandb files: after 7 bytes, records in blocks of 32 KB, as LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        data, at, message = path.read_bytes(), 7, b""
        while at < len(data):
            room = 32768 - at % 32768
            if room < 7:
                at += room
                continue
            if at + 7 > len(data):
                break  # the rest is not written yet
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            if at + 7 + length > len(data):
                break
            message += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # the whole message, or its last part
                record = Record()
                record.ParseFromString(message)
                message = b""
                if record.WhichOneof("record_type") == "history":
                    items = {item.key or ".".join(item.nested_key): item for item in record.history.item}
                    yield {key: json.loads(item.value_json) for key, item in items.items()}


@pytest.mark.filterwarnings("ignore")  # of the package
def test_wandb_offline_has_each_round_of_a_resumed_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    out = tmp_path / "run"
    train(make_task(), rounds=3, out=out, log=["wandb"], callback=stop_after(2))
    time.sleep(1)  # wandb names the file of a part by the second in which it starts
    train(make_task(), rounds=3, out=out, log=["wandb"])

    def training_rows() -> list[dict[str, float]]:
        return [row for row in read_offline_history(out) if "train/loss" in row]

    wait_for(lambda: len(training_rows()) >= 3, seconds=20)  # a process of the package writes the file
    rows = {row["_step"]: row for row in training_rows()}
    lines = read_lines(out, "train")
    assert sorted(rows) == [1, 2, 3]
    assert len(training_rows()) == 3
    assert [rows[line["round"]]["train/loss"] for line in lines] == [line["loss"] for line in lines]
    accuracy = {line["round"]: line["accuracy"] for line in read_lines(out, "test")}
    assert {step: row["test/accuracy"] for step, row in rows.items()} == {t: accuracy[t] for t in (1, 2, 3)}
    runs = {path.stem for path in out.glob("wandb/offline-run-*/run-*.wandb")}
    assert len(runs) == 1, "both parts have the same id"


@pytest.mark.filterwarnings("ignore")  # of the packages that MLflow uses
def test_mlflow_has_each_round_of_a_resumed_command_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    assert run_small(out, rounds=1).code == 0  # the first round is sent later
    for rounds in (2, 3):
        done = run_small(out, "--log", "mlflow,tensorboard", rounds=rounds)
        assert done.code == 0, done.err
    client = MlflowClient()
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "train/loss")
    lines = read_lines(out, "train")
    assert [(point.step, point.value) for point in history] == [
        (line["round"], line["loss"]) for line in lines
    ]
    accuracy = client.get_metric_history(run.info.run_id, "test/accuracy")
    tests = read_lines(out, "test")
    assert [(p.step, p.value) for p in accuracy] == [(line["round"], line["accuracy"]) for line in tests]
    assert run.data.params["clients_per_round"] == "2" and run.info.status == "FINISHED"
    assert list((out / "tensorboard").iterdir())
