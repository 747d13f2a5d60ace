"""The training loop of any federated algorithm, as in Algorithm 1: start reading here.

seed, t -> cohort -> each client's batches -> algorithm.client -> (delta_i, n_i, kept vectors)
        -> weighted mean Delta_t -> algorithm.server -> x_{t+1} -> evaluation -> step

The loop is a generator: it yields the clients of a round and receives them trained. A driver connects it to
an executor. `drive` runs one loop; another driver may train the clients of several loops together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple, TypeVar

from fedopt.algorithms import Algorithm, Round, State
from fedopt.algorithms.schedules import Schedule
from fedopt.algorithms.state import is_finite
from fedopt.data import Split
from fedopt.engine.aggregate import BlockedMean, RoundReport, Tally
from fedopt.engine.client_state import ClientMemory
from fedopt.engine.evaluate import evaluate_sample, is_evaluated
from fedopt.engine.executors.base import BlockResult, Executor, RoundJobs
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.sampling import Sampler, longest_first
from fedopt.engine.server import call_server
from fedopt.engine.torch_state import kept_generators, seeded, single_thread
from fedopt.engine.worker import ClientJob
from fedopt.errors import Diverged, RunError

# A round whose mean loss exceeds this multiple of the initial model's loss, or of 1, does not train.
DIVERGENCE_FACTOR = 1e6

T = TypeVar("T")
Loop = Generator[RoundJobs, Iterable[BlockResult], T]


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
class TrainingSetup:
    """The parts of training that are the same in every round."""

    algorithm: Algorithm
    executor: Executor
    clients: Split
    sampler: Sampler
    cohort: int
    seed: int
    table: ClientMemory


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


def drive(loop: Loop[T], executor: Executor) -> T:
    """Run a loop to its end on an executor, and return its result."""
    with single_thread():
        try:
            jobs = next(loop)
            while True:
                jobs = loop.send(executor.train(jobs.jobs, jobs.sent, jobs.kept))
        except StopIteration as end:
            result: T = end.value
            return result


def train(
    setup: TrainingSetup, plan: TrainingPlan, position: Position, observe: Callable[[Step], bool]
) -> Loop[None]:
    """Run the rounds from `position` on, until the plan ends or `observe` returns True.

    Raise an error when the run no longer trains.
    """
    if position.round == 0:
        evaluation = _evaluate(setup, plan, position)
        if evaluation is not None and isfinite(evaluation["loss"]):
            position = position._replace(initial_loss=evaluation["loss"])
        if observe(Step(position, None, None, evaluation)):
            return
    while position.round < plan.rounds:
        t = position.round
        eta_l = plan.client_rate.rate(t, position.client_schedule)
        eta = plan.server_rate.rate(t, position.server_schedule)
        state, report = yield from run_round(setup, position.state, t, eta_l, eta)
        loss = report.loss if report.loss is not None else float("nan")
        is_sound = isfinite(loss) and loss <= position.largest_loss
        trained = report.clients > 0 and (report.loss is None or is_sound)
        position = position._replace(
            round=t + 1,
            state=state,
            client_schedule=plan.client_rate.observe(position.client_schedule, loss),
            server_schedule=plan.server_rate.observe(position.server_schedule, loss),
            bytes_total=position.bytes_total + report.bytes_down + report.bytes_up,
            stalled=0 if trained else position.stalled + 1,
        )
        if observe(Step(position, report, (eta_l, eta), _evaluate(setup, plan, position))):
            return
        if position.stalled >= min(plan.patience, plan.rounds):
            raise _stalled_error(position, report)


def run_round(
    setup: TrainingSetup, state: State, t: int, eta_l: float, eta: float
) -> Loop[tuple[State, RoundReport]]:
    """Run round t: x_t is in `state`, x_{t+1} in the returned state."""
    algorithm, clients, population = setup.algorithm, setup.clients, len(setup.clients.ids)
    cohort = setup.sampler(setup.seed, t, population, setup.cohort)  # Sample a subset S of clients
    cohort = longest_first(cohort, clients.sizes)
    round = Round(t, eta_l, eta, len(cohort), population)
    jobs = [ClientJob(round, i) for i in cohort]
    blocks = yield RoundJobs(setup.seed, jobs, algorithm.sent(state), setup.table.read)

    mean, tally = BlockedMean(), Tally(clients)
    with kept_generators():  # clients are trained as their blocks are read
        for block in blocks:  # in cohort order
            mean.add_block(block.total)  # Delta_t = sum_i n_i / n Delta_i
            for report in block.reports:
                tally.add(report)
            for client, vectors in block.kept.items():
                setup.table.write(t, client, vectors)

        if mean.count:  # x_{t+1} = SERVEROPT(x_t, -Delta_t, eta, t)
            with seeded(setup.seed, "server", t):
                after = call_server(algorithm, state, mean.value() or (), round._replace(cohort=mean.count))
            if is_finite(after):
                state = after
            else:  # the mean was finite, but the step was not: nothing changes
                setup.table.discard(t)
                tally.reject_all()
    return state, tally.report(algorithm, len(jobs), state)


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
