"""Progress: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import small

from fedopt.display.progress import ProgressBar, RunProgress
from fedopt.runs.resolve import resolve


def test_without_a_terminal_evaluations_and_the_last_round_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"rounds": 4, "eval.every": 2, "eval.last_every": 4}
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | settings)
    with ProgressBar("fedavg", 4) as bar:
        assert not bar.visible
        small.run(settings=settings, on_step=RunProgress(bar, config).on_step)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["0/4", "2/4", "4/4"]
    assert all("accuracy" in line for line in lines)
    assert "loss" in lines[-1] and "rounds/s" in lines[-1] and "left" not in lines[-1]
    assert lines[1].endswith("left")


def test_task_without_metrics_shows_the_test_loss(capsys: pytest.CaptureFixture[str]) -> None:
    task = replace(small.SMALL, metrics={})
    config = resolve(task, "fedavg", small.SETTINGS)
    with ProgressBar("fedavg", 3) as bar:
        small.run(task=task, on_step=RunProgress(bar, config).on_step)
    assert all("test loss" in line for line in capsys.readouterr().err.splitlines())


def test_in_a_terminal_a_bar_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressBar("trials", 3) as bar:
        assert bar.visible
        bar.update(2, "1 running", total=5)
        bar.log("a line")
    shown = capsys.readouterr().err
    assert "a line" in shown and "2/5" in shown and "1 running" in shown
