"""A round of any federated algorithm, as in Algorithm 1: start reading here.

seed, t -> cohort -> each client's batches -> algorithm.client -> (delta_i, n_i, what it keeps)
        -> weighted mean Delta_t -> algorithm.server -> x_{t+1}
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from fedopt.algorithms import Algorithm, Round, State
from fedopt.algorithms.state import flatten, is_finite
from fedopt.data import Split
from fedopt.engine.aggregate import BlockedMean
from fedopt.engine.executors import Executor
from fedopt.engine.memory import ClientMemory
from fedopt.engine.runner import ClientJob
from fedopt.engine.sampling import Sampler, longest_first
from fedopt.errors import UserError


@dataclass(frozen=True)
class Setting:
    """What stays the same from round to round."""

    algorithm: Algorithm
    executor: Executor
    clients: Split
    sampler: Sampler
    cohort: int
    seed: int
    table: ClientMemory


class Report(NamedTuple):
    """A round in numbers."""

    loss: float | None  # mean train loss of the cohort during its local work; None without a finite client
    clients: int  # clients in the mean
    rejected: tuple[str, ...]  # clients left out because their update was not finite
    diverged: tuple[str, ...]  # those, and clients in the mean whose loss was not finite
    skipped: int  # clients with fewer examples than one batch, where short batches are dropped
    examples: int  # processed
    bytes_down: int
    bytes_up: int


def run_round(setting: Setting, state: State, t: int, eta_l: float, eta: float) -> tuple[State, Report]:
    """Round t: x_t in `state`, x_{t+1} in what is returned."""
    algorithm, clients = setting.algorithm, setting.clients
    population = len(clients.ids)
    cohort = setting.sampler(setting.seed, t, population, setting.cohort)  # Sample a subset S of clients
    cohort = longest_first(cohort, clients.sizes)
    round = Round(t, eta_l, eta, len(cohort), population)
    sent = algorithm.sent(state)

    mean, returned = BlockedMean(), len(algorithm.returns)
    loss, examples = 0.0, 0
    accepted: list[str] = []
    rejected: list[str] = []
    diverged: list[str] = []
    jobs = [ClientJob(round, i) for i in cohort]
    for outcome, vectors in setting.executor.map(jobs, sent, setting.table.read):  # for each i in S
        if not vectors:  # too few examples for one batch
            mean.skip()
            continue
        if not outcome.finite:
            mean.skip()
            rejected.append(clients.ids[outcome.client])
            continue
        accepted.append(clients.ids[outcome.client])
        if not isfinite(outcome.loss):
            diverged.append(clients.ids[outcome.client])
        mean.add(outcome.weight, vectors[:returned])  # Delta_t = sum_i n_i / n Delta_i
        if algorithm.keeps:
            setting.table.write(t, outcome.client, vectors[returned:])
        loss, examples = loss + outcome.loss, examples + outcome.examples

    value = mean.value()
    if value is not None:
        after = algorithm.server(state, value, round._replace(cohort=mean.count))  # x_{t+1} = SERVEROPT(...)
        _check_state(state, after)
        if is_finite(after):
            state = after
        else:  # the mean was finite, the step was not: everything stays as it is
            setting.table.discard(t)
            accepted, rejected = [], [*accepted, *rejected]
    vector_bytes = 4 * len(state.x)
    return state, Report(
        loss=loss / examples if accepted and examples else None,
        clients=len(accepted),
        rejected=tuple(rejected),
        diverged=tuple(dict.fromkeys([*rejected, *diverged])),
        skipped=len(cohort) - len(accepted) - len(rejected),
        examples=examples,
        bytes_down=vector_bytes * len(algorithm.sends) * len(cohort),
        bytes_up=vector_bytes * len(algorithm.returns) * (len(accepted) + len(rejected)),
    )


def _check_state(before: State, after: State) -> None:
    """The server's state keeps its form: what `init` did not make, a resumed run would not find."""
    shapes = [{name: v.shape for name, v in flatten(state).items()} for state in (before, after)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"the server's update returned the vectors {', '.join(shapes[1]) or 'none'} and init made "
            f"{', '.join(shapes[0])}; give the optimizer an init: fedopt.Optimizer(update, init)"
        )
