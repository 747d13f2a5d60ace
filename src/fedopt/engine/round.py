"""A round of any federated algorithm, as in Algorithm 1: start reading here.

seed, t -> cohort -> each client's batches -> algorithm.client -> (delta_i, n_i, kept vectors)
        -> weighted mean Delta_t -> algorithm.server -> x_{t+1}
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedopt.algorithms import Algorithm, Round, State, Vector
from fedopt.algorithms.state import flatten, has_form_of, is_finite, map_vectors
from fedopt.data import Split
from fedopt.engine.aggregate import BlockedMean
from fedopt.engine.client_state import ClientMemory
from fedopt.engine.executors.base import BlockResult, Executor
from fedopt.engine.fast_paths import SERVER_ON_SPARSE_ROWS
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.engine.sampling import Sampler, longest_first
from fedopt.engine.worker import ClientJob, ClientReport
from fedopt.errors import FedoptError, ModelError, one_line
from fedopt.models.sparse_rows import SparseRows


class OverwrittenRows:
    """The rows of x that the newest round has overwritten, so that an interrupted round can be undone."""

    def __init__(self) -> None:
        self._saved: tuple[int, Vector, SparseRows, Vector] | None = None

    def write(self, t: int, x: Vector, rows: SparseRows, before: Vector, after: Vector) -> None:
        """Replace the values `before` of some rows of `x` by `after`, in round t."""
        self._saved = t, x, rows, before
        rows.put(x, after)

    def undo_after(self, rounds: int) -> None:
        """Undo the newest round, unless it is one of the first `rounds` rounds, which are finished."""
        if self._saved is not None:
            t, x, rows, before = self._saved
            if t >= rounds:
                rows.put(x, before)
            self._saved = None


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
    overwritten: OverwrittenRows = field(default_factory=OverwrittenRows)


class RoundReport(NamedTuple):
    """Statistics of one round.

    Attributes:
        loss: mean train loss of the cohort during its local work; None without a finite client.
        clients: number of clients in the mean.
        rejected: clients that were left out because their loss or update was not finite.
        skipped: number of clients with fewer examples than one batch, if short batches are dropped.
        examples: number of processed examples.
        bytes_down: number of bytes sent to clients.
        bytes_up: number of bytes sent to the server.
    """

    loss: float | None
    clients: int
    rejected: tuple[str, ...]
    skipped: int
    examples: int
    bytes_down: int
    bytes_up: int


class RoundJobs(NamedTuple):
    """The clients of a round and what they receive. Clients of several runs may be trained together."""

    round: Round
    jobs: Sequence[ClientJob]
    sent: tuple[Vector, ...]


def run_round(
    setup: TrainingSetup, state: State, t: int, eta_l: float, eta: float
) -> tuple[State, RoundReport]:
    """Run round t: x_t is in `state`, x_{t+1} in the returned state.

    The round may overwrite `state.x` (see `SERVER_ON_SPARSE_ROWS`). Continue with the returned state.
    """
    work = begin_round(setup, state, t, eta_l, eta)
    return finish_round(setup, state, work, setup.executor.train(work.jobs, work.sent, setup.table.read))


def begin_round(setup: TrainingSetup, state: State, t: int, eta_l: float, eta: float) -> RoundJobs:
    """Sample the clients of round t."""
    clients = setup.clients
    population = len(clients.ids)
    cohort = setup.sampler(setup.seed, t, population, setup.cohort)  # Sample a subset S of clients
    cohort = longest_first(cohort, clients.sizes)
    round = Round(t, eta_l, eta, len(cohort), population)
    return RoundJobs(round, [ClientJob(round, i) for i in cohort], setup.algorithm.sent(state))


def finish_round(
    setup: TrainingSetup, state: State, work: RoundJobs, blocks: Iterable[BlockResult]
) -> tuple[State, RoundReport]:
    """Average the trained clients and update the server. `blocks` are in cohort order."""
    mean, tally, t = BlockedMean(), _Tally(setup.clients), work.round.t
    for block in blocks:
        mean.add_block(block.total)  # Delta_t = sum_i n_i / n Delta_i
        for report in block.reports:
            tally.add(report)
        for client, vectors in block.kept.items():
            setup.table.write(t, client, vectors)

    if mean.count:
        after = _server_update(setup, state, mean, work.round._replace(cohort=mean.count))
        if after is not None:
            state = after
        else:  # the mean was finite, but the step was not: nothing changes
            setup.table.discard(t)
            tally.reject_all()
    return state, tally.report(setup.algorithm, len(work.jobs), state)


def _server_update(setup: TrainingSetup, state: State, mean: BlockedMean, round: Round) -> State | None:
    """Return x_{t+1} = SERVEROPT(x_t, -Delta_t, eta, t), or None if it is not finite."""
    algorithm = setup.algorithm
    sparse = mean.sparse_value() if SERVER_ON_SPARSE_ROWS.applies(algorithm) else None
    if sparse is None:
        after = _call_server(algorithm, state, mean.value() or (), round)
        return after if is_finite(after) else None
    rows, delta = sparse
    before = map_vectors(state, rows.take)
    after = _call_server(algorithm, before, delta, round)
    if not is_finite(after):
        return None
    setup.overwritten.write(round.t, state.x, rows, before.x, after.x)
    return state


class _Tally:
    """Counts the clients and losses of a round while it runs."""

    def __init__(self, clients: Split) -> None:
        self._clients = clients
        self._accepted: list[str] = []
        self._rejected: list[str] = []
        self._loss, self._examples = 0.0, 0

    def add(self, client: ClientReport) -> None:
        """Record a client. It is part of the mean if it had a batch and is finite."""
        if not client.steps:
            return
        name = self._clients.ids[client.client]
        if not client.finite:
            self._rejected.append(name)
            return
        self._accepted.append(name)
        self._loss, self._examples = self._loss + client.loss, self._examples + client.examples

    def reject_all(self) -> None:
        self._accepted, self._rejected = [], [*self._accepted, *self._rejected]

    def report(self, algorithm: Algorithm, cohort: int, state: State) -> RoundReport:
        lengths = {STATISTICS: len(state.running_statistics)} if STATISTICS in algorithm.returns else {}
        down, up = (
            sum(lengths.get(name, len(state.x)) for name in names)
            for names in (algorithm.sends, algorithm.returns)
        )
        accepted, rejected = len(self._accepted), len(self._rejected)
        return RoundReport(
            loss=self._loss / self._examples if accepted and self._examples else None,
            clients=accepted,
            rejected=tuple(self._rejected),
            skipped=cohort - accepted - rejected,
            examples=self._examples,
            bytes_down=4 * down * cohort,
            bytes_up=4 * up * (accepted + rejected),
        )


def initial_state(algorithm: Algorithm, x: Vector) -> State:
    """Return the state before the first round. Errors in a user's algorithm are explained in one line."""
    try:
        state = algorithm.init(x)
    except Exception as error:
        raise _explain("init", error) from error
    missing = [name for name in ("x", *algorithm.sends) if not hasattr(state, name)]
    if missing:
        raise ModelError(
            f"init returned a {type(state).__name__} without the vector {missing[0]!r}; it must return a "
            "NamedTuple with x and the vectors that `sends` names",
            what="init",
        )
    flatten(state)  # raises an error if the state cannot be stored
    return state


def _call_server(algorithm: Algorithm, state: State, mean: tuple[Vector, ...], round: Round) -> State:
    try:
        after = algorithm.server(state, mean, round)
    except FedoptError:
        raise
    except Exception as error:
        raise _explain("server", error, round.t + 1) from error
    if not has_form_of(after, state):
        _check_form(state, after)
    return after


def _explain(function: str, error: Exception, round: int | None = None) -> ModelError:
    where = "" if round is None else f" in round {round}"
    failure = ModelError(
        f"the {function} function of the algorithm failed{where}: {one_line(error)}",
        what=function,
        round=round,
    )
    failure.add_note(traceback.format_exc())
    return failure


def _check_form(before: State, after: State) -> None:
    """Check that the server keeps the form of its state, which resumed runs rely on."""
    if not isinstance(after, tuple):
        raise ModelError(
            f"the server function returned a {type(after).__name__}; it must return its state, a "
            f"{type(before).__name__}",
            what="server",
        )
    expected, returned = flatten(before), flatten(after)
    if expected.keys() != returned.keys():
        raise ModelError(
            f"the server function returned the vectors {', '.join(returned) or 'none'}, but init made "
            f"{', '.join(expected)}; an optimizer with a state needs an init: fedopt.Optimizer(update, init)",
            what="server",
        )
    for name, vector in expected.items():
        other = returned[name]
        if (vector.shape, vector.dtype) != (other.shape, other.dtype):
            raise ModelError(
                f"the server function returned {name} with shape {tuple(other.shape)} and type "
                f"{other.dtype}; expected {tuple(vector.shape)} and {vector.dtype}",
                what="server",
            )
