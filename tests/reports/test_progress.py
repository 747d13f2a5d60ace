"""Progress: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import small

from fedopt.reports.progress import ProgressBar, RunProgress
from fedopt.runs.resolve import resolve


def test_without_a_terminal_evaluations_and_the_last_round_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"rounds": 4, "eval.every": 2, "eval.last_every": 4}
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | settings)
    with ProgressBar("fedavg", 4) as bar:
        assert not bar.visible
        result = small.run(settings=settings, on_step=RunProgress(bar, config, "accuracy").on_step)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["0/4", "2/4", "4/4"]
    for line, test in zip(lines, result.test, strict=True):  # the format of tables, with the round
        assert f"accuracy {test['accuracy'] * 100:.1f} % at round {test['round']}" in line
    assert "loss" in lines[-1] and "rounds/s" in lines[-1] and "left" not in lines[-1]
    assert lines[1].endswith("left")


def test_task_without_metrics_shows_the_test_loss(capsys: pytest.CaptureFixture[str]) -> None:
    task = replace(small.SMALL, metrics={})
    config = resolve(task, "fedavg", small.SETTINGS)
    with ProgressBar("fedavg", 3) as bar:
        small.run(task=task, on_step=RunProgress(bar, config, task.metric).on_step)
    assert all("test loss" in line for line in capsys.readouterr().err.splitlines())


def use_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Treat the captured stderr as a terminal with `width` columns."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))


def shown_bar(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The last state of a bar in a terminal with `width` columns."""
    use_terminal(monkeypatch, width)
    with ProgressBar("fedadagrad", 150) as bar:
        assert bar.visible
        bar.update(73, "accuracy 41.5 % at round 70  train loss 0.8123", remaining="12 s left")
        bar.log("a line")
    return capsys.readouterr().err


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_bar_keeps_count_and_remaining_time_at_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown_bar(width, monkeypatch, capsys)
    assert "73/150" in text and "12 s left" in text and "━" in text
    assert "a line" in text


def test_wide_terminal_shows_title_and_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown_bar(120, monkeypatch, capsys)
    assert "fedadagrad" in text and "accuracy 41.5 % at round 70  train loss 0.8123" in text


def test_bar_of_several_runs_shows_their_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(monkeypatch, 120)
    config = resolve(small.SMALL, "fedavg", small.SETTINGS | {"rounds": 3})
    with ProgressBar("", 6) as bar:
        progress = RunProgress(bar, config, "accuracy", "fedavg (2 of 2)", before=3)
        small.run(settings={"rounds": 3}, on_step=progress.on_step)
    text = capsys.readouterr().err
    assert "6/6" in text and "fedavg (2 of 2)" in text
