"""Runs whose updates are not finite."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from written import read_info, read_lines

import fedopt
from fedopt import cli
from fedopt.engine.sampling import uniform
from fedopt.errors import Diverged, RunError
from fedopt.runs.result import RunResult
from fedopt.tasks.metrics import mse


def run_diverging(out: Path | None, **settings: Any) -> RunResult:
    """No client's update is finite, from the first round on."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(24))))
    return small.run(settings={"rounds": 10, "patience": 3} | settings, task=task, out=out)


@pytest.mark.parametrize(("every", "rounds"), [(10, 10), (1, 10), (1, 3)])
def test_run_without_finite_updates_diverges_every_time_it_is_started(
    every: int, rounds: int, tmp_path: Path
):
    out = tmp_path / "run"
    for attempt in range(2):
        with pytest.raises(
            RunError, match=r"^round \d+: no client with a finite loss and update for .*clients c\d\d, c\d\d"
        ) as caught:
            run_diverging(out, rounds=rounds, **{"checkpoint.every": every})
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, Diverged)
        assert (read_info(out)["status"], read_info(out)["message"]) == ("diverged", str(caught.value))
        assert read_info(out)["rounds"] == rounds and read_info(out)["rounds_done"] >= 3
        assert "train_loss" not in read_info(out)  # no round had a finite one
        train_lines = [line for line in read_lines(out) if line["split"] == "train"]
        if attempt == 0:
            assert str(caught.value).startswith("round 3:")
            assert [line["round"] for line in train_lines] == [1, 2, 3]
        assert all(line["loss"] is None and line["rejected"] == 6 for line in train_lines)


def test_only_consecutive_rounds_count_towards_divergence():
    """One client a round, every second one tainted: the sampler tells how many follow on each other."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(0, 24, 2))))
    tainted = [uniform(0, t, 24, 1)[0] % 2 == 0 for t in range(20)]
    streaks = [len(streak) for streak in "".join("x" if bad else " " for bad in tainted).split()]
    longest = max(streaks)
    assert 1 < longest < sum(streaks)
    settings = {"clients_per_round": 1, "rounds": 20, "eval.every": 20}
    result = small.run(settings=settings | {"patience": longest + 1}, task=task)
    assert [line["rejected"] for line in result.train] == [int(bad) for bad in tainted]
    assert [line["clients"] for line in result.train] == [int(not bad) for bad in tainted]
    assert [line["loss"] is None for line in result.train] == tainted
    with pytest.raises(RunError, match=f"for {longest} rounds in a row"):
        small.run(settings=settings | {"patience": longest}, task=task)


def test_infinite_loss_with_finite_updates_diverges(tmp_path: Path):
    """A squared error of 1e20 is beyond float32, its gradient is not."""
    task = replace(small.SMALL, prepare=small.far_away, loss=small.squared, metrics={"mse": mse})
    with pytest.raises(RunError, match=r"^round 5: .*clients c\d\d") as caught:
        small.run(settings={"rounds": 10, "client.lr": 1e-30}, task=task, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    losses = [line["loss"] for line in read_lines(tmp_path / "run")]
    assert losses == [None] * len(losses)
    assert all(
        line["rejected"] == 6 and not line["clients"] for line in read_lines(tmp_path / "run", "train")
    )
    assert len(caught.value.clients) == 6


def infinite_for_first(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, plus infinity for every example of class 0. The gradient is finite."""
    return F.cross_entropy(outputs, targets, reduction="none") + torch.where(targets == 0, torch.inf, 0.0)


@pytest.mark.parametrize("by", ["inputs", "loss"])
def test_clients_without_a_finite_loss_or_update_are_left_out_and_counted(by: str, tmp_path: Path):
    """One rule for both: the run continues with the other clients."""
    points = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    clients = {name: (points.copy(), np.full(12, 1)) for name in "abcd"}
    if by == "inputs":
        clients["d"][0][3] = np.nan
    else:
        clients["d"][1][3] = 0
    loss = F.cross_entropy if by == "inputs" else infinite_for_first
    task = fedopt.own_task(torch.nn.Linear(3, 2), loss, clients, (points, np.full(12, 1)))
    config = {"clients_per_round": 4, "patience": 2, "client.lr": 0.1}
    result = fedopt.run(task, rounds=5, config=config, out=tmp_path / "run")
    lines = read_lines(tmp_path / "run", "train")
    assert [(line["clients"], line["rejected"], line["rejected_clients"]) for line in lines] == [
        (3, 1, ["d"])
    ] * 5
    assert all(line["loss"] is not None for line in lines)
    assert result.rejected == 5 and read_info(tmp_path / "run")["status"] == "done"


def run_main(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["fedopt", *words])
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_command_of_a_diverging_run_exits_with_1_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["run", "emnist_cr", "--rounds", "6", "--executor", "serial", "--out", str(tmp_path / "run")]
    for setting in ("client.lr=1e30", "client.steps=2", "data.clients=3", "clients_per_round=2"):
        words += ["--set", setting]
    words += ["--set", "eval.sample=50", "--set", "patience=2"]
    for _ in range(2):
        assert run_main(words, monkeypatch) == 1
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and captured.out == ""
        last = captured.err.strip().splitlines()[-1]
        assert last.startswith("failed: round 2: ") and "clients writer" in last
        assert [line["round"] for line in read_lines(tmp_path / "run", "train")] == [1, 2]
        assert read_info(tmp_path / "run")["status"] == "diverged"


def test_finite_loss_far_beyond_the_initial_one_counts_as_divergence(tmp_path: Path):
    """Linear regression with a rate that is too large: x grows, and the loss is finite until it overflows."""
    points = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    targets = points[:, :1].copy()

    def make_task():
        model = torch.nn.Linear(3, 1)
        return fedopt.own_task(model, F.mse_loss, {"a": (points, targets)}, (points, targets))

    task, out = make_task(), tmp_path / "run"
    config = {"clients_per_round": 1, "client.lr": 20.0, "patience": 3, "client.batch_size": 20}
    config |= {"checkpoint.every": 1}
    with pytest.raises(Diverged) as caught:
        fedopt.run(task, rounds=100, config=config, out=out)
    lines = read_lines(out, "train")
    limit = 1e6 * max(1.0, read_lines(out, "test")[0]["loss"])
    absurd = [line["round"] for line in lines if line["loss"] > limit]
    assert all(line["rejected"] == 0 for line in lines)  # every update was finite
    assert absurd == [line["round"] for line in lines][-3:] and caught.value.round == absurd[-1]
    assert read_info(out)["status"] == "diverged"
    with pytest.raises(Diverged) as resumed:  # the limit is part of the checkpoint
        fedopt.run(task, rounds=100, config=config, out=out)
    assert resumed.value.round == caught.value.round


def test_rejected_clients_are_counted_in_the_result(tmp_path: Path):
    task = replace(small.SMALL, prepare=partial(small.tainted, (0, 1, 2)))
    settings = {"clients_per_round": 24, "rounds": 2}
    result = small.run(settings=settings, task=task, out=tmp_path / "run")
    assert result.rejected == result.summary()["rejected"] == read_info(tmp_path / "run")["rejected"] == 6


def test_run_without_batches_fails_and_does_not_diverge(tmp_path: Path):
    with pytest.raises(RunError, match="client.drop_last=false") as caught:
        settings = {"rounds": 5, "patience": 2, "client.batch_size": 100, "client.drop_last": True}
        small.run(settings=settings, out=tmp_path / "run")
    assert not isinstance(caught.value, Diverged)
    assert read_info(tmp_path / "run")["status"] == "failed"


def test_record_of_a_diverged_run_has_its_losses(tmp_path: Path):
    """The even clients are tainted: rounds go well until three of them follow on each other."""
    task = replace(small.SMALL, prepare=partial(small.tainted, tuple(range(0, 24, 2))))
    settings = {"clients_per_round": 1, "rounds": 200, "patience": 3, "eval.every": 1}
    with pytest.raises(Diverged):
        small.run(settings=settings, task=task, out=tmp_path / "run")
    train_lines, test_lines = (
        [x for x in read_lines(tmp_path / "run") if x["split"] == s] for s in ("train", "test")
    )
    found, done = read_info(tmp_path / "run"), len(train_lines)
    assert (found["rounds"], found["rounds_done"]) == (200, done)
    losses = [line["loss"] for line in train_lines[-100:] if line["loss"] is not None]
    assert found["train_loss"] == pytest.approx(np.mean(losses))
    assert found["value"] == pytest.approx(np.mean([line["accuracy"] for line in test_lines[1:][-100:]]))


@pytest.mark.parametrize("rate", ["server.lr=1e39", "client.lr=1e39"])
def test_rate_beyond_float32_is_reported_without_traceback(
    rate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["run", "emnist_cr", "--rounds", "1", "--executor", "serial", "--out", str(tmp_path / "run")]
    for setting in (rate, "client.steps=1", "data.clients=1", "clients_per_round=1", "eval.sample=50"):
        words += ["--set", setting]
    assert run_main(words, monkeypatch) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err
