"""Pieces of work that wait, run, get lost or take too long."""

from __future__ import annotations

from typing import Any

import pytest

from fedopt.engine.executors.ray.attempts import Attempts, PieceTimes
from fedopt.engine.executors.ray.pieces import Piece


def pieces(count: int) -> list[Piece]:
    work: Any = [0]
    return [Piece(work, 10, False) for _ in range(count)]


def times(*seconds: float) -> PieceTimes:
    """Times of finished pieces of ten steps."""
    known = PieceTimes()
    for value in seconds:
        known.add(value, 10)
    return known


def test_answers_are_taken_in_order() -> None:
    attempts = Attempts(pieces(2), 10, times())
    assert (attempts.start(1, 0.0), attempts.start(2, 0.0)) == (0, 1)
    attempts.finish(2, "second", 1.0)
    assert not attempts.has_answer()
    attempts.finish(1, "first", 2.0)
    assert (attempts.take(), attempts.take()) == ("first", "second")


def test_pieces_do_not_run_far_ahead_of_the_answers_in_use() -> None:
    attempts = Attempts(pieces(5), 2, times())
    assert [attempts.start(slot, 0.0) for slot in (1, 2, 3)] == [0, 1, None]
    attempts.finish(1, "first", 1.0)
    assert attempts.start(3, 1.0) is None
    attempts.take()
    assert attempts.start(3, 1.0) == 2


def test_late_piece_runs_again_while_the_others_wait_for_it() -> None:
    """The first piece hangs, and the other slot may not run further ahead."""
    attempts = Attempts(pieces(5), 2, times(1.0, 1.0, 1.0))
    assert [attempts.start(slot, 0.0) for slot in (1, 2)] == [0, 1]
    attempts.finish(2, "second", 1.0)
    assert attempts.start(2, 1.0) is None
    assert attempts.start(2, 3.1) == 0


def test_piece_of_a_lost_slot_runs_next() -> None:
    attempts = Attempts(pieces(3), 10, times())
    attempts.start(1, 0.0)
    attempts.start(2, 0.0)
    assert attempts.lose(1) is None
    assert attempts.start(3, 1.0) == 0


def test_piece_that_kills_three_slots_is_returned() -> None:
    attempts = Attempts(pieces(2), 10, times())
    results = []
    for slot in (1, 2, 3):
        assert attempts.start(slot, 0.0) == 0
        results.append(attempts.lose(slot))
    assert results == [None, None, 0]


def test_late_piece_runs_twice_and_its_first_answer_counts() -> None:
    """Pieces take one second; after three, an idle slot repeats the piece. No third slot does."""
    attempts = Attempts(pieces(1), 10, times(1.0, 1.0, 1.0))
    assert attempts.start(1, 0.0) == 0
    assert attempts.start(2, 2.9) is None
    assert attempts.start(2, 3.1) == 0
    assert attempts.start(3, 9.9) is None
    attempts.finish(2, "second slot", 4.0)
    attempts.finish(1, "first slot", 5.0)
    assert attempts.take() == "second slot"


def test_answer_to_a_piece_that_has_been_used_is_ignored() -> None:
    attempts = Attempts(pieces(2), 10, times(1.0, 1.0, 1.0))
    attempts.start(1, 0.0)
    attempts.start(2, 0.0)
    attempts.finish(2, "b", 1.0)
    assert attempts.start(2, 9.0) == 0
    attempts.finish(2, "a", 9.5)
    assert (attempts.take(), attempts.take()) == ("a", "b")
    attempts.finish(1, "late", 10.0)
    assert not attempts.has_answer()


def test_piece_is_not_late_before_the_usual_time_is_known() -> None:
    attempts = Attempts(pieces(1), 10, times(1.0, 1.0))
    attempts.start(1, 0.0)
    assert attempts.start(2, 1000.0) is None


def test_patience_is_proportional_to_the_steps_and_at_least_one_second() -> None:
    known = times(2.0, 2.0, 100.0)
    assert known.patience(10) == pytest.approx(6.0)
    assert known.patience(30) == pytest.approx(18.0)
    assert times(0.01, 0.01, 0.01).patience(10) == 1.0
