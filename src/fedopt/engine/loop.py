"""The training loop: rounds and evaluations. It writes no files; its caller does."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

from fedopt.algorithms import State
from fedopt.algorithms.schedules import Schedule
from fedopt.engine.evaluate import evaluate_sample, is_evaluated
from fedopt.engine.executors.base import BlockResult
from fedopt.engine.fast_paths import SERVER_ON_SPARSE_ROWS
from fedopt.engine.round import RoundJobs, RoundReport, TrainingSetup, begin_round, finish_round
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.torch_state import single_thread
from fedopt.errors import Diverged, RunError

# A round whose mean loss exceeds this multiple of the initial model's loss, or of 1, does not train.
DIVERGENCE_FACTOR = 1e6


class Position(NamedTuple):
    """The position of a run. With the vectors that clients keep, it is all that a resumed run needs.

    Attributes:
        round: number of completed rounds.
        state: the server's state; `state.x` is the model as one vector.
        client_schedule: state of the schedule of the client rate.
        server_schedule: state of the schedule of the server rate.
        bytes_total: number of bytes sent in both directions.
        stalled: number of consecutive rounds that did not train.
        initial_loss: loss of the initial model on the evaluation sample.
    """

    round: int
    state: State
    client_schedule: Mapping[str, Any]
    server_schedule: Mapping[str, Any]
    bytes_total: int = 0
    stalled: int = 0
    initial_loss: float | None = None

    @property
    def largest_loss(self) -> float:
        """The largest loss of a round that trains."""
        return inf if self.initial_loss is None else DIVERGENCE_FACTOR * max(1.0, self.initial_loss)


@dataclass(frozen=True)
class TrainingPlan:
    """Number of rounds, learning rates and evaluations of a run."""

    rounds: int
    client_rate: Schedule
    server_rate: Schedule
    sample: int  # number of examples in the evaluation sample
    eval_every: int
    eval_last_every: int
    patience: int  # number of consecutive rounds without a finite client after which the run stops


class Step(NamedTuple):
    """One round and its evaluation, as callbacks receive it.

    A new run begins with a step before the first round, in which `report` and `rates` are None.

    Attributes:
        position: the position after the round.
        report: statistics of the round.
        rates: eta_l and eta.
        evaluation: loss and metrics if the model was evaluated.

    Examples:
        >>> def show(step: fedopt.Step) -> None:
        ...     print(step.position.round, step.report and step.report.clients)
        >>> result = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1}, callback=show)
        0 None
        1 10
    """

    position: Position
    report: RoundReport | None
    rates: tuple[float, float] | None
    evaluation: dict[str, float] | None


def start(state: State, plan: TrainingPlan) -> Position:
    return Position(0, state, plan.client_rate.init, plan.server_rate.init)


def train(setup: TrainingSetup, plan: TrainingPlan, position: Position) -> Generator[Step, None, None]:
    """Yield the rounds from `position` on as steps. Raise an error when the run no longer trains.

    The vectors of a step are valid until the next step.
    """
    with single_thread():
        if SERVER_ON_SPARSE_ROWS.applies(setup.algorithm):  # rounds overwrite this copy of x
            x = setup.executor.share(position.state.x)
            position = position._replace(state=position.state._replace(x=x))
        if position.round == 0:
            step = first_step(setup, plan, position)
            position = step.position
            yield step
        while position.round < plan.rounds:
            work = next_jobs(setup, plan, position)
            blocks = setup.executor.train(work.jobs, work.sent, setup.table.read)
            step = next_step(setup, plan, position, work, blocks)
            position = step.position
            yield step
            check_progress(plan, step)


def first_step(setup: TrainingSetup, plan: TrainingPlan, position: Position) -> Step:
    """Evaluate the initial model."""
    evaluation = _evaluate(setup, plan, position)
    if evaluation is not None and isfinite(evaluation["loss"]):
        position = position._replace(initial_loss=evaluation["loss"])
    return Step(position, None, None, evaluation)


def next_jobs(setup: TrainingSetup, plan: TrainingPlan, position: Position) -> RoundJobs:
    """Sample the clients of the next round."""
    t = position.round
    eta_l = plan.client_rate.rate(t, position.client_schedule)
    eta = plan.server_rate.rate(t, position.server_schedule)
    return begin_round(setup, position.state, t, eta_l, eta)


def next_step(
    setup: TrainingSetup,
    plan: TrainingPlan,
    position: Position,
    work: RoundJobs,
    blocks: Iterable[BlockResult],
) -> Step:
    """Finish a round whose clients are trained, and evaluate the new model if it is due."""
    state, report = finish_round(setup, position.state, work, blocks)
    loss = report.loss if report.loss is not None else float("nan")
    is_sound = isfinite(loss) and loss <= position.largest_loss
    trained = report.clients > 0 and (report.loss is None or is_sound)
    position = position._replace(
        round=position.round + 1,
        state=state,
        client_schedule=plan.client_rate.observe(position.client_schedule, loss),
        server_schedule=plan.server_rate.observe(position.server_schedule, loss),
        bytes_total=position.bytes_total + report.bytes_down + report.bytes_up,
        stalled=0 if trained else position.stalled + 1,
    )
    rates = work.round.eta_l, work.round.eta
    return Step(position, report, rates, _evaluate(setup, plan, position))


def check_progress(plan: TrainingPlan, step: Step) -> None:
    """Raise an error if too many rounds in a row did not train."""
    if step.report is not None and step.position.stalled >= min(plan.patience, plan.rounds):
        raise _stalled_error(step.position, step.report)


def _evaluate(setup: TrainingSetup, plan: TrainingPlan, position: Position) -> dict[str, float] | None:
    if not is_evaluated(position.round, plan.rounds, plan.eval_every, plan.eval_last_every):
        return None
    state = position.state
    return evaluate_sample(setup.executor, state.x, plan.sample, running_statistics(state))


def _stalled_error(position: Position, report: RoundReport) -> RunError:
    """Build the error that ends a run without finite updates."""
    if report.loss is not None and isfinite(report.loss):
        return Diverged(
            f"round {position.round}: the training loss is {report.loss:.2g}; for {position.stalled} rounds "
            f"it was more than {DIVERGENCE_FACTOR:.0e} times the initial one; try a smaller client.lr or "
            "server.lr",
            round=position.round,
        )
    if report.skipped and not report.rejected:
        return RunError(
            f"round {position.round}: no client has examples for one batch; set client.drop_last=false "
            "or a smaller client.batch_size"
        )
    names = ", ".join(report.rejected[:5]) + (", ..." if len(report.rejected) > 5 else "")
    return Diverged(
        f"round {position.round}: no client with a finite loss and update for {position.stalled} rounds in a "
        f"row (clients {names}); try a smaller client.lr or server.lr, and check these clients' data",
        round=position.round,
        clients=report.rejected,
    )
