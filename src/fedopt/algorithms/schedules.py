"""Learning-rate schedules: eta(t) for the server and eta_l(t) for the clients.

Let b be the base rate, r `decay`, s `decay_rounds`, t the round (from 0) and w the rounds of `warmup`:

    constant         b
    staircase        b r^floor((t-w)/s)       the paper's ExpDecay: r = 0.1, s = 500, on eta_l alone
    exponential      b r^((t-w)/s)
    inverse_linear   b / (1 + r (t-w)/s)
    inverse_sqrt     b / sqrt(1 + r (t-w)/s)
    plateau          b times `factor` whenever the mean train loss has stopped decreasing

During warm-up the rate is b (t+1)/w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, isfinite, sqrt
from typing import Any, NamedTuple

from fedopt.algorithms.options import Count, Fraction, NonNegative, Positive

ScheduleState = Mapping[str, Any]  # stored in checkpoints; JSON values only


class Schedule(NamedTuple):
    """A learning rate by round.

    `rate(t, state)` returns the rate of round t. `observe(state, loss)` returns the state after a round.
    """

    rate: Callable[[int, ScheduleState], float]
    init: ScheduleState
    observe: Callable[[ScheduleState, float], ScheduleState]


def _by_round(rate: Callable[[int], float]) -> Schedule:
    return Schedule(lambda t, state: rate(t), {}, lambda state, loss: state)


def constant(lr: float) -> Schedule:
    return _by_round(lambda t: lr)


def staircase(lr: float, *, decay: Positive = 0.1, decay_rounds: Count = 500) -> Schedule:
    """The paper's ExpDecay.

    >>> [staircase(1.0).rate(t, {}) for t in (0, 499, 500)]
    [1.0, 1.0, 0.1]
    """
    return _by_round(lambda t: lr * decay ** floor(t / decay_rounds))


def exponential(lr: float, *, decay: Positive = 0.1, decay_rounds: Count = 500) -> Schedule:
    return _by_round(lambda t: lr * decay ** (t / decay_rounds))


def inverse_linear(lr: float, *, decay: Positive = 1.0, decay_rounds: Count = 500) -> Schedule:
    return _by_round(lambda t: lr / (1 + decay * t / decay_rounds))


def inverse_sqrt(lr: float, *, decay: Positive = 1.0, decay_rounds: Count = 1) -> Schedule:
    """The defaults give b / sqrt(1 + t), the decay of the paper's analysis."""
    return _by_round(lambda t: lr / sqrt(1 + decay * t / decay_rounds))


def plateau(
    lr: float,
    *,
    factor: Fraction = 0.1,
    window: Count = 100,
    patience: Count = 100,
    min_delta: NonNegative = 1e-4,
) -> Schedule:
    """Multiply the rate by `factor` when the train loss stops decreasing.

    The loss is averaged over `window` rounds. It has stopped decreasing if it did not fall by `min_delta` for
    `patience` rounds. After a reduction, counting pauses for `window` rounds.
    """

    def observe(state: ScheduleState, loss: float) -> ScheduleState:
        if not isfinite(loss):
            return state
        losses = [*state["losses"], loss][-window:]
        if len(losses) < window:  # a mean over fewer rounds is too noisy
            return {**state, "losses": losses}
        average = sum(losses) / window
        lr, best, wait, cooldown = state["lr"], state["best"], state["wait"], state["cooldown"]
        if cooldown > 0:
            cooldown, wait = cooldown - 1, 0
        if best is None or average < best - min_delta:
            best, wait = average, 0
        elif cooldown == 0:
            wait += 1
            if wait >= patience:
                lr, cooldown, wait = lr * factor, window, 0
        return {"lr": lr, "best": best, "wait": wait, "cooldown": cooldown, "losses": losses}

    start: ScheduleState = {"lr": lr, "best": None, "wait": 0, "cooldown": 0, "losses": []}
    return Schedule(lambda t, state: float(state["lr"]), start, observe)


def warm_up(schedule: Schedule, rounds: int) -> Schedule:
    """Use the rate b (t+1)/w in the first w rounds, then `schedule` from its round 0."""
    if rounds == 0:
        return schedule

    def rate(t: int, state: ScheduleState) -> float:
        if t < rounds:
            return schedule.rate(0, state) * (t + 1) / rounds
        return schedule.rate(t - rounds, state)

    return schedule._replace(rate=rate)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "staircase": staircase,
    "exponential": exponential,
    "inverse_linear": inverse_linear,
    "inverse_sqrt": inverse_sqrt,
    "plateau": plateau,
}
