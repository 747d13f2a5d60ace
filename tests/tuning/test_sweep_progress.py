"""The progress of a sweep: counted rounds, remaining rounds and logged lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from records import make_record

from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.trials import Trial, WorkItem, make_trial


class RecordingBar:
    visible = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: tuple[int, int | None] = (0, 0)  # completed and total rounds

    def log(self, text: str) -> None:
        self.lines.append(text)

    def update(self, completed: int, status: str, total: int | None = None, remaining: str = "") -> None:
        self.shown, self.remaining = (completed, total), remaining


def make(rate: float) -> Trial:
    return make_trial(Path("t"), "so_lr", "fedavg", {"client_lr": rate}, {"rounds": 4})


def test_progress_counts_rounds_of_running_finished_and_diverged_trials() -> None:
    bar: Any = RecordingBar()
    progress, first, second, known = SweepProgress(bar, 3), make(0.0), make(1.0), make(2.0)
    progress.start_batch({first.key: 4, second.key: 4}, rounds_after=6)
    progress.finish(WorkItem(known, 4), make_record([1.0] * 4), 0.9)  # it was complete before
    assert bar.lines == [] and bar.shown == (0, 14)
    progress.update(3, running=2)
    assert bar.shown == (3, 14)
    progress.update(5, running=1)
    progress.finish(WorkItem(first, 4), make_record([1.0] * 4), 0.5)
    assert bar.shown == (5, 14)
    progress.update(5, running=0)
    progress.finish(WorkItem(second, 4), make_record([1.0], "diverged"), None)  # after one of four rounds
    assert bar.shown == (5, 11)
    assert bar.remaining.endswith(" left")
    trials = "2 of 3 trials, 1 running"
    assert bar.lines[0].startswith(f"fedavg client_lr=0: done 0.5000 ({trials}, ")
    assert bar.lines[0].endswith("best of fedavg: client_lr=0)")
    trials = "3 of 3 trials, 0 running, 1 diverged"
    assert bar.lines[1].startswith(f"fedavg client_lr=1: diverged ({trials}, ")


def test_score_at_a_rung_is_shown_but_does_not_count_as_best() -> None:
    bar: Any = RecordingBar()
    progress, trial = SweepProgress(bar, 1), make(0.0)
    progress.start_batch({trial.key: 2}, rounds_after=2)
    progress.update(2, running=0)
    progress.finish(WorkItem(trial, 2), make_record([1.0] * 2, "pruned"), 0.25)
    assert bar.lines[0].startswith("fedavg client_lr=0: round 2 of 4 0.2500 (0 of 1 trials")
    assert "best" not in bar.lines[0]


def test_remaining_time_is_correct_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds per second, an hour without progress, then two rounds per second again."""
    clock = [0.0]
    monkeypatch.setattr("fedopt.tuning.progress.time.monotonic", lambda: clock[0])
    bar: Any = RecordingBar()
    progress, trial = SweepProgress(bar, 1), make(0.0)
    progress.start_batch({trial.key: 4000}, rounds_after=0)
    for rounds in range(1, 2001):
        clock[0] += 3600.5 if rounds == 1000 else 0.5
        progress.update(rounds, running=1)
    assert bar.remaining == "17 min left"  # 2,000 rounds
