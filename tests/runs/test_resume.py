"""Interrupted, extended and damaged runs resume."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from run_cases import ROUNDS, RUNS, interrupted, train
from safetensors import safe_open
from torch import nn
from written import read_info, read_lines

from fedopt.engine.loop import Step


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("case", RUNS)
def test_resumed_run_equals_uninterrupted_run(case: str, every: int, tmp_path: Path):
    whole = train(case, tmp_path / "whole", every)
    assert torch.equal(whole.x, train(case, None).x), "a run without a directory is the same run"
    for after in range(ROUNDS):
        out = tmp_path / str(after)
        interrupted(case, out, every, after)
        assert read_info(out)["status"] == "running"
        continued = train(case, out, every)
        assert torch.equal(continued.x, whole.x)
        assert read_lines(out) == read_lines(tmp_path / "whole")
        assert read_info(out)["status"] == "done"


def test_plateau_case_reduces_the_rate():
    """The first round sets the mark, the second is no better by 10: from the third on the rate is lower."""
    rates = [line["client_lr"] for line in train("plateau", None).train]
    assert rates[:3] == pytest.approx([0.1, 0.1, 0.05])
    assert rates[-1] < 0.05


def test_run_resumed_many_times_equals_uninterrupted_run(tmp_path: Path):
    for after in range(ROUNDS):
        interrupted("scaffold", tmp_path / "run", 1, after)
    assert train("scaffold", tmp_path / "run").x_sha256 == train("scaffold", None).x_sha256
    assert [line["round"] for line in read_lines(tmp_path / "run", "train")] == [
        1,
        2,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize("case", ["fedyogi", "scaffold", "plateau"])
def test_run_extended_to_six_rounds_equals_run_of_six_rounds(case: str, tmp_path: Path):
    six = {"rounds": 6, "eval.every": 1}
    whole = train(case, tmp_path / "whole", settings=six)
    first = train(case, tmp_path / "run", every=4, settings=six | {"rounds": 3})
    assert first.rounds == 3 and read_info(tmp_path / "run")["rounds"] == 3
    extended = train(case, tmp_path / "run", every=4, settings=six)
    assert extended.x_sha256 == whole.x_sha256 != first.x_sha256
    assert read_lines(tmp_path / "run") == read_lines(tmp_path / "whole")
    assert (read_info(tmp_path / "run")["status"], read_info(tmp_path / "run")["rounds"]) == ("done", 6)


def test_finished_run_is_reported_and_not_changed(tmp_path: Path):
    first = train("fedyogi", tmp_path / "run")
    files = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    messages: list[str] = []
    again = train("fedyogi", tmp_path / "run", log=messages.append)
    assert again.summary() == first.summary() | {"seconds": again.seconds}
    assert [text for text in messages if "finished" in text and "5 rounds" in text]
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == files


def test_directory_without_config_is_started_again(tmp_path: Path):
    """The files of a run come one after the other; config.toml is the last of them."""
    whole = train("fedyogi", tmp_path / "whole")
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(tmp_path / "whole" / "run.json", out)
    (out / "run.json").write_text(json.dumps(read_info(out) | {"status": "running"}))
    (out / "metrics.jsonl").touch()
    assert train("fedyogi", out).x_sha256 == whole.x_sha256


def test_metrics_after_the_checkpoint_are_removed_on_resume(tmp_path: Path):
    """So that another kill finds no round twice: the file is whole and in order after every step."""
    out = tmp_path / "run"
    interrupted("fedyogi", out, 2, after=3)
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "split": "train", "loss": 0.1}\n{"round": 5, "split": "tra')
    seen = []

    def look(step: Step) -> None:
        seen.append([line["round"] for line in read_lines(out, "train")])

    assert train("fedyogi", out, 2, on_step=look).x_sha256 == train("fedyogi", None).x_sha256
    assert seen == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("file", ["state.safetensors", "position.json"])
def test_previous_checkpoint_replaces_a_damaged_one(file: str, tmp_path: Path):
    interrupted("scaffold", tmp_path / "run", 1, after=4)
    damaged = tmp_path / "run" / "checkpoints" / "000004" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0x40
    damaged.write_bytes(bytes(content))
    messages: list[str] = []
    assert (
        train("scaffold", tmp_path / "run", log=messages.append).x_sha256 == train("scaffold", None).x_sha256
    )
    assert any("000004" in text and "damaged" in text for text in messages)


def test_only_the_newest_checkpoints_are_kept_and_hold_only_the_state(tmp_path: Path):
    train("scaffold", tmp_path / "run")
    directory = tmp_path / "run" / "checkpoints"
    assert sorted(p.name for p in directory.iterdir()) == ["000004", "000005"]
    for checkpoint in directory.iterdir():
        names = ["clients.json", "position.json", "state.safetensors"]
        assert sorted(p.name for p in checkpoint.iterdir()) == names
        with safe_open(checkpoint / "state.safetensors", framework="pt") as file:
            assert sorted(file.keys()) == ["c", "x"]
    left_over = [p for p in (tmp_path / "run").rglob("*.tmp")]
    assert left_over == []


def test_model_without_options_can_be_trained_and_resumed(tmp_path: Path):
    task = replace(small.SMALL, model=partial(nn.Linear, small.FEATURES, small.CLASSES))
    result = small.run(task=task, out=tmp_path / "run")
    assert result.params == 8 * 4 + 4
    assert small.run(task=task, out=tmp_path / "run", settings={"rounds": 4}).rounds == 4


def test_old_result_is_removed_while_a_run_is_extended(tmp_path: Path):
    """While a run is extended, records show the mean so far, not that of the shorter run."""
    train("fedyogi", tmp_path / "run", settings={"rounds": 3})
    assert {"value", "x_sha256"} <= read_info(tmp_path / "run").keys()
    seen: list[dict[str, Any]] = []
    train("fedyogi", tmp_path / "run", on_step=lambda step: seen.append(read_info(tmp_path / "run")))
    for found in seen:
        assert (found["status"], found["rounds"]) == ("running", ROUNDS)
        assert not {"value", "train_loss", "x_sha256", "seconds"} & found.keys()
