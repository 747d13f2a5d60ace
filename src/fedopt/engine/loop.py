"""The rounds of a run, one after the other. It knows nothing of files: who calls it writes things down."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from fedopt.algorithms import State
from fedopt.algorithms.schedules import Schedule
from fedopt.engine.evaluate import is_evaluated, measure_sample
from fedopt.engine.round import Report, Setting, own, run_round
from fedopt.engine.worker import single_thread
from fedopt.errors import Diverged, RunError


class Position(NamedTuple):
    """Where a run stands: all that is needed to go on from here, beside the clients' table."""

    round: int  # rounds done
    state: State
    client_schedule: Mapping[str, Any]
    server_schedule: Mapping[str, Any]
    bytes_total: int = 0
    stalled: int = 0  # rounds in a row without a finite client


@dataclass(frozen=True)
class Plan:
    """How long a run goes on and what it does on the way."""

    rounds: int
    client_rate: Schedule
    server_rate: Schedule
    sample: int  # examples in the evaluation sample
    eval_every: int
    eval_last_every: int
    patience: int  # rounds without a finite client before the run is given up


class Step(NamedTuple):
    """What happened: a round (None for the evaluation before the first) and perhaps an evaluation."""

    position: Position
    report: Report | None
    rates: tuple[float, float] | None  # eta_l, eta
    evaluation: dict[str, float] | None


def start(state: State, plan: Plan) -> Position:
    return Position(0, state, plan.client_rate.init, plan.server_rate.init)


def train(setting: Setting, plan: Plan, position: Position) -> Generator[Step, None, None]:
    """Rounds from `position` on, each as a `Step`; raises RunError when the run no longer trains.

    The vectors of a step are valid until the next one is asked for.
    """

    def evaluated(at: Position) -> dict[str, float] | None:
        if not is_evaluated(at.round, plan.rounds, plan.eval_every, plan.eval_last_every):
            return None
        return measure_sample(setting.executor, at.state.x, plan.sample)

    with single_thread():
        position = position._replace(state=own(setting, position.state))
        if position.round == 0:
            yield Step(position, None, None, evaluated(position))
        while position.round < plan.rounds:
            t = position.round
            eta_l = plan.client_rate.rate(t, position.client_schedule)
            eta = plan.server_rate.rate(t, position.server_schedule)
            state, report = run_round(setting, position.state, t, eta_l, eta, in_place=True)
            loss = report.loss if report.loss is not None else float("nan")
            trained = report.clients > 0 and (report.loss is None or isfinite(loss))
            position = Position(
                round=t + 1,
                state=state,
                client_schedule=plan.client_rate.observe(position.client_schedule, loss),
                server_schedule=plan.server_rate.observe(position.server_schedule, loss),
                bytes_total=position.bytes_total + report.bytes_down + report.bytes_up,
                stalled=0 if trained else position.stalled + 1,
            )
            yield Step(position, report, (eta_l, eta), evaluated(position))
            if position.stalled >= min(plan.patience, plan.rounds):
                raise _given_up(position, report)


def _given_up(position: Position, report: Report) -> RunError:
    """What ends a run which no longer trains."""
    if report.skipped and not report.diverged:
        return RunError(
            f"round {position.round}: no client has examples for one batch; set client.drop_last=false "
            "or a smaller client.batch_size"
        )
    names = ", ".join(report.diverged[:5]) + (", ..." if len(report.diverged) > 5 else "")
    return Diverged(
        f"round {position.round}: no finite update for {position.stalled} rounds in a row "
        f"(clients {names}); try a smaller client.lr or server.lr"
    )
