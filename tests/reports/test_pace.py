"""The speed of a run."""

from __future__ import annotations

import pytest

from fedopt.reports.progress import Pace


def test_rate_is_correct_again_soon_after_a_pause() -> None:
    pace = Pace()
    for round in range(301):
        before = pace.update(round, 2.0 * round)
    assert before == pytest.approx(0.5)
    hour = 3600.0
    during = pace.update(301, 602.0 + hour)
    assert during is not None and during < 0.1
    for round in range(302, 403):
        after = pace.update(round, 2.0 * round + hour)
    assert after == pytest.approx(0.5)


def test_rate_includes_evaluations() -> None:
    """A round takes a second, and each 100th ends with an evaluation of 50 seconds: 100 rounds in 150 s."""
    pace, seconds = Pace(), 0.0
    for round in range(1, 1001):
        seconds += 51.0 if round % 100 == 0 else 1.0
        rate = pace.update(round, seconds)
    assert rate == pytest.approx(100 / 150, rel=0.02)


def test_window_contains_evaluations_that_are_far_apart() -> None:
    """A round takes a second, and each 500th ends with an evaluation of 300 seconds: 500 rounds in 800 s."""
    pace, seconds = Pace(rounds=500), 0.0
    for round in range(1, 2001):
        seconds += 301.0 if round % 500 == 0 else 1.0
        rate = pace.update(round, seconds)
        if round > 1000:
            assert rate == pytest.approx(500 / 800, rel=0.02)


def test_short_rounds_need_little_memory() -> None:
    """100,000 rounds in 1,000 seconds. The rate covers two minutes, with one mark per second."""
    pace = Pace()
    for round in range(100_000):
        rate = pace.update(round, round / 100)
    assert rate == pytest.approx(100.0)
    assert len(pace._marks) <= 122


def test_rate_of_a_run_with_one_time_is_unknown() -> None:
    pace = Pace()
    assert pace.update(5, 1.0) is None
    assert pace.update(6, 1.0) is None  # a clock with few digits
