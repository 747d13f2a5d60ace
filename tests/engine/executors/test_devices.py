"""The choice of a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typed import fedopt as command

import fedopt
from fedopt.errors import UnknownName

QUICK = ["--set", "data.clients=3", "--set", "clients_per_round=2", "--set", "client.steps=1"]


QUICK += ["--set", "client.batch_size=2", "--set", "eval.sample=4", "--rounds", "1"]


no_gpu = pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is another device"
)


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_unavailable_device_is_rejected(device: str, tmp_path: Path) -> None:
    done = command("run", "emnist_cr", "--device", device, "--out", tmp_path / "run", *QUICK)
    assert (done.code, done.out) == (2, "")
    message = done.err.strip().splitlines()[-1]
    assert device in message and "available: cpu" in message and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_unknown_device_is_rejected() -> None:
    done = command("compare", "emnist_cr", "--algorithms", "fedavg", "--device", "gpu")
    assert done.code == 2 and "'gpu'" in done.err and "cuda" in done.err
    with pytest.raises(UnknownName) as caught:
        fedopt.run("emnist_cr", device="tpu")
    assert caught.value.name == "tpu" and "cuda" in caught.value.allowed


@no_gpu
def test_configuration_records_the_device_of_vectorised_runs_only() -> None:
    plain, auto, cpu, vectorised = (
        command("run", "emnist_cr", "--show-config", *words).out
        for words in ([], ["--device", "auto"], ["--device", "cpu"], ["--executor", "vectorised"])
    )
    assert plain == auto == cpu and "\nvectorised =" not in plain
    assert set(vectorised.splitlines()) - set(plain.splitlines()) == {'vectorised = "cpu"'}


def test_vectorised_run_has_its_own_configuration_and_similar_results(tmp_path: Path) -> None:
    out = tmp_path / "run"
    plain = command("run", "synthetic_lr", "--executor", "serial", "--json", "--out", out, *QUICK)
    refused = command("run", "synthetic_lr", "--executor", "vectorised", "--out", out, *QUICK)
    assert refused.code == 2 and "vectorised is None there and 'cpu' here" in refused.err
    stacked = command(
        "run", "synthetic_lr", "--executor", "vectorised", "--json", "--out", tmp_path / "v", *QUICK
    )
    one, other = (json.loads(done.out) for done in (plain, stacked))
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    assert 'vectorised = "cpu"' in (tmp_path / "v" / "config.toml").read_text()
    measured = command("eval", tmp_path / "v", "--executor", "vectorised", "--json")
    assert measured.code == 0


def test_runs_of_a_vectorised_comparison_record_their_command(tmp_path: Path) -> None:
    done = command(
        *("compare", "synthetic_lr", "--algorithms", "fedavg,fedadam", "--executor", "vectorised"),
        *("--json", "--out", tmp_path, *QUICK),
    )
    assert done.code == 0, done.err
    info = json.loads((tmp_path / "fedadam" / "run.json").read_text())
    assert "--executor vectorised" in info["command"]
    again = command(*info["command"].split()[1:])
    assert again.code == 0 and "is finished" in again.err


def test_api_accepts_a_device() -> None:
    settings = {"data.clients": 3, "clients_per_round": 2, "client.steps": 1, "client.batch_size": 2}
    settings |= {"eval.sample": 4}
    one, other = (
        fedopt.run("synthetic_lr", rounds=1, config=settings, executor=executor, device="cpu")
        for executor in ("serial", "vectorised")
    )
    assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)
