"""Learning rates by round, worked by hand from the formulas of the authors' code."""

from __future__ import annotations

import json
from math import sqrt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.algorithms.schedules import SCHEDULES, Schedule, constant, plateau, staircase, warm_up

quick = settings(deadline=None, derandomize=True, max_examples=60)

# kind, arguments, {round: rate} from the base rate 2
BY_HAND: list[tuple[str, dict[str, Any], dict[int, float]]] = [
    ("constant", {}, {0: 2, 7: 2, 9999: 2}),
    # 2 * .5^floor(t/10)
    ("staircase", {"decay": 0.5, "decay_rounds": 10}, {0: 2, 9: 2, 10: 1, 19: 1, 20: 0.5, 35: 0.25}),
    # 2 * .25^(t/10): .25^(1/2) = 1/2
    ("exponential", {"decay": 0.25, "decay_rounds": 10}, {0: 2, 5: 1, 10: 0.5, 15: 0.25, 20: 0.125}),
    # 2 / (1 + 3t/10)
    ("inverse_linear", {"decay": 3.0, "decay_rounds": 10}, {0: 2, 10: 0.5, 5: 0.8, 30: 0.2}),
    # 2 / sqrt(1 + 3t/10)
    ("inverse_sqrt", {"decay": 3.0, "decay_rounds": 10}, {0: 2, 10: 1, 50: 0.5, 5: 2 / sqrt(2.5)}),
    ("inverse_sqrt", {}, {0: 2, 3: 1, 15: 0.5}),  # 2 / sqrt(1 + t), the decay of the paper's analysis
]


def rates(schedule: Schedule, losses: list[float]) -> list[float]:
    """Return the rate of each round for these train losses."""
    state, seen = schedule.init, []
    for t, loss in enumerate(losses):
        seen.append(schedule.rate(t, state))
        state = schedule.observe(state, loss)
    return seen


@pytest.mark.parametrize(("kind", "arguments", "expected"), BY_HAND)
def test_rates_equal_numbers_worked_by_hand(kind, arguments, expected):
    schedule = SCHEDULES[kind](2.0, **arguments)
    assert {t: schedule.rate(t, schedule.init) for t in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "arguments", "expected"), BY_HAND)
def test_warmup_is_linear_and_decay_starts_after_it(kind, arguments, expected):
    """Over w = 4 rounds: 2 (t+1)/4 = .5, 1, 1.5, 2; then the rates of t - 4."""
    schedule = warm_up(SCHEDULES[kind](2.0, **arguments), 4)
    assert [schedule.rate(t, schedule.init) for t in range(5)] == pytest.approx([0.5, 1, 1.5, 2, 2])
    assert {t: schedule.rate(t + 4, schedule.init) for t in expected} == pytest.approx(expected)


def test_warmup_of_zero_rounds_changes_nothing():
    assert warm_up(constant(3.0), 0).rate(0, {}) == 3


def test_staircase_of_the_paper():
    expected = {0: 0.1, 499: 0.1, 500: 0.01, 999: 0.01, 1000: 1e-3, 1499: 1e-3}
    assert {t: staircase(0.1).rate(t, {}) for t in expected} == pytest.approx(expected)


# window = 2, patience = 3, cooldown = window = 2, min_delta = .5, factor = .1
TRACE = [
    # loss, mean of the last two -> best, rounds without a fall, cooldown; and the rate of the next round
    (8.0, 1.0),  # the window is not full
    (6.0, 1.0),  # 7: the best
    (4.0, 1.0),  # 5: the best
    (5.2, 1.0),  # 4.6: falls by less than min_delta, 1
    (4.8, 1.0),  # 5.0: 2
    (3.0, 1.0),  # 3.9 < 5 - .5: the best, 0
    (4.4, 1.0),  # 3.7: 1
    (4.4, 1.0),  # 4.4: 2
    (4.4, 0.1),  # 4.4: 3 = patience, so the rate falls; cooldown 2
    (4.4, 0.1),  # 4.4: cooldown 1
    (4.4, 0.1),  # 4.4: cooldown over, 1
    (4.4, 0.1),  # 4.4: 2
    (4.4, 0.01),  # 4.4: 3, the rate falls; cooldown 2
    (1.0, 0.01),  # 2.7: the best, even while cooling down (1)
    (1.0, 0.01),  # 1.0: the best; the cooldown is over
    (1.0, 0.01),  # 1.0: 1
    (0.6, 0.01),  # .8: 2
    (0.6, 0.001),  # .6: falls by .4 in all, less than min_delta: 3, the rate falls
]


def small_plateau(lr: float) -> Schedule:
    return plateau(lr, factor=0.1, window=2, patience=3, min_delta=0.5)


def test_plateau_equals_a_trace_worked_by_hand():
    losses = [loss for loss, _ in TRACE]
    assert rates(small_plateau(1.0), [*losses, 0.0])[1:] == pytest.approx([rate for _, rate in TRACE])


def test_plateau_waits_for_a_full_window():
    """The mean over `window` rounds exists from round `window` - 1 on: one round is not a mean.

    The losses 0 9 3 3 3 3 have the means 4.5 (the best), 6 (1), 3 (the best), 3 (1), 3 (2) over two rounds.
    """
    assert rates(small_plateau(1.0), [0.0, 9.0, 3.0, 3.0, 3.0, 3.0]) == [1.0] * 6


def test_plateau_defaults_equal_the_authors_code():
    """Factor .1, window 100, patience 100, min_delta 1e-4, and then a cooldown of 100 rounds.

    Once a constant loss has been the best, the rate falls 100 rounds later. The last round of the cooldown
    counts again, so the next fall comes after 99 + 100 rounds.
    """
    seen = rates(plateau(1.0), [1.0] * 700)
    falls = [t for t in range(1, 700) if seen[t] != seen[t - 1]]
    assert falls[1] - falls[0] == falls[2] - falls[1] == 199
    assert [seen[t] for t in falls[:3]] == pytest.approx([0.1, 0.01, 0.001])
    slow = rates(plateau(1.0), [1000 - 2e-4 * t for t in range(700)])
    assert slow == [1.0] * 700  # falls by more than min_delta in every round


def test_plateau_ignores_non_finite_losses():
    losses = [loss for loss, _ in TRACE]
    schedule = small_plateau(1.0)
    holes = rates(schedule, [v for loss in losses for v in (loss, float("nan"), float("inf"))])
    assert holes[::3] == rates(schedule, losses)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("stop", [1, 8, 10, 14])
def test_resuming_from_the_saved_state_gives_the_same_rates(kind, stop):
    factory = small_plateau if kind == "plateau" else SCHEDULES[kind]
    schedule, losses = warm_up(factory(1.0), 3), [loss for loss, _ in TRACE]
    state = schedule.init
    for loss in losses[:stop]:
        state = schedule.observe(state, loss)
    resumed = schedule._replace(init=json.loads(json.dumps(state, allow_nan=False)))
    late = resumed._replace(rate=lambda t, state: schedule.rate(t + stop, state))
    assert rates(late, losses[stop:]) == rates(schedule, losses)[stop:]


def test_observe_does_not_change_the_earlier_state():
    schedule = small_plateau(1.0)
    before = json.dumps(schedule.init)
    schedule.observe(schedule.observe(schedule.init, 1.0), 2.0)
    assert json.dumps(schedule.init) == before


@pytest.mark.parametrize("kind", SCHEDULES)
@given(
    lr=st.floats(1e-3, 1e3),
    warm=st.integers(0, 5),
    decay=st.floats(0.1, 0.99),
    every=st.integers(1, 20),
    losses=st.lists(st.floats(0, 10), min_size=8, max_size=30),
)
@quick
def test_rates_are_positive_and_never_increase_after_warmup(kind, lr, warm, decay, every, losses):
    arguments: dict[str, Any] = {"decay": decay, "decay_rounds": every}
    if kind == "plateau":
        arguments = {"factor": decay, "window": 2, "patience": every}
    schedule = warm_up(SCHEDULES[kind](lr, **({} if kind == "constant" else arguments)), warm)
    seen = rates(schedule, losses)
    assert all(rate > 0 for rate in seen)
    assert all(a >= b for a, b in zip(seen[warm:], seen[warm + 1 :], strict=False))
    assert max(seen) <= lr * (1 + 1e-12)
