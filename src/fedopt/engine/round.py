"""A round of any federated algorithm, as in Algorithm 1: start reading here.

seed, t -> cohort -> each client's batches -> algorithm.client -> (delta_i, n_i, what it keeps)
        -> weighted mean Delta_t -> algorithm.server -> x_{t+1}
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import torch

from fedopt.algorithms import Algorithm, Round, State, Vector
from fedopt.algorithms.base import Still
from fedopt.algorithms.state import flatten, is_finite, mapped
from fedopt.data import Split
from fedopt.engine.aggregate import BlockedMean
from fedopt.engine.client_state import ClientMemory
from fedopt.engine.executors.base import Executor
from fedopt.engine.sampling import Sampler, longest_first
from fedopt.engine.worker import ClientJob, Outcome
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


def run_round(
    setting: Setting, state: State, t: int, eta_l: float, eta: float, in_place: bool = False
) -> tuple[State, Report]:
    """Round t: x_t in `state`, x_{t+1} in what is returned.

    `in_place` allows the round to change the vectors of `state`, which come from `own`.
    """
    algorithm, clients = setting.algorithm, setting.clients
    population, returned = len(clients.ids), len(algorithm.returns)
    cohort = setting.sampler(setting.seed, t, population, setting.cohort)  # Sample a subset S of clients
    cohort = longest_first(cohort, clients.sizes)
    round = Round(t, eta_l, eta, len(cohort), population)

    mean, tally = BlockedMean(), _Tally(clients)
    jobs = [ClientJob(round, i, int(clients.sizes[i])) for i in cohort]
    for outcome, vectors in setting.executor.map(jobs, algorithm.sent(state), setting.table.read):
        if not tally.accepts(outcome, vectors):
            mean.skip()
            continue
        mean.add(outcome.weight, vectors[:returned], outcome.part)  # Delta_t = sum_i n_i / n Delta_i
        if algorithm.keeps:
            setting.table.write(t, outcome.client, vectors[returned:])

    if mean.count:
        after = _server(algorithm, state, mean, round._replace(cohort=mean.count), in_place)
        if after is not None:
            state = after
        else:  # the mean was finite, the step was not: everything stays as it is
            setting.table.discard(t)
            tally.reject_all()
    return state, tally.report(algorithm, len(cohort), len(state.x))


def own(setting: Setting, state: State) -> State:
    """A state for rounds in place: a copy, of which clients see what they are sent."""
    algorithm = setting.algorithm
    if not isinstance(algorithm.server, Still):
        return state  # every round makes a new one
    state = mapped(state, torch.clone)
    if algorithm.sends[0] != "x":  # an evaluation sends x alone, and it would take the first one's place
        return state
    shared = setting.executor.share(algorithm.sent(state))
    return state._replace(**dict(zip(algorithm.sends, shared, strict=True)))


def _server(
    algorithm: Algorithm, state: State, mean: BlockedMean, round: Round, in_place: bool
) -> State | None:
    """x_{t+1} = SERVEROPT(x_t, -Delta_t, eta, t), or None if that is not finite.

    Where clients touched a part of the model and the server leaves the rest of its state alone, that part is
    all it gets.
    """
    touched = mean.touched() if isinstance(algorithm.server, Still) else None
    if touched is None:
        after = _checked(state, algorithm.server(state, mean.value() or (), round))
        return after if is_finite(after) else None
    part, means = touched
    few = mapped(state, part.take)
    after = _checked(few, algorithm.server(few, means, round))
    if not is_finite(after):
        return None
    if not in_place:
        state = mapped(state, torch.clone)
    for vector, changed in zip(flatten(state).values(), flatten(after).values(), strict=True):
        part.put(vector, changed)
    return state


class _Tally:
    """Which clients took part and how it went, while the round runs."""

    def __init__(self, clients: Split) -> None:
        self._clients = clients
        self._accepted: list[str] = []
        self._rejected: list[str] = []
        self._diverged: list[str] = []
        self._loss, self._examples = 0.0, 0

    def accepts(self, outcome: Outcome, vectors: tuple[Vector, ...]) -> bool:
        """Whether a client enters the mean: it had a batch to train on, and its update is finite."""
        if not vectors:
            return False
        name = self._clients.ids[outcome.client]
        (self._accepted if outcome.finite else self._rejected).append(name)
        if not (outcome.finite and isfinite(outcome.loss)):
            self._diverged.append(name)
        if outcome.finite:
            self._loss, self._examples = self._loss + outcome.loss, self._examples + outcome.examples
        return outcome.finite

    def reject_all(self) -> None:
        self._accepted, self._rejected = [], [*self._accepted, *self._rejected]
        self._diverged = self._rejected

    def report(self, algorithm: Algorithm, cohort: int, d: int) -> Report:
        accepted, rejected = len(self._accepted), len(self._rejected)
        return Report(
            loss=self._loss / self._examples if accepted and self._examples else None,
            clients=accepted,
            rejected=tuple(self._rejected),
            diverged=tuple(self._diverged),
            skipped=cohort - accepted - rejected,
            examples=self._examples,
            bytes_down=4 * d * len(algorithm.sends) * cohort,
            bytes_up=4 * d * len(algorithm.returns) * (accepted + rejected),
        )


def _checked(before: State, after: State) -> State:
    """The server's state keeps its form: what `init` did not make, a resumed run would not find."""
    shapes = [{name: v.shape for name, v in flatten(state).items()} for state in (before, after)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"the server's update returned the vectors {', '.join(shapes[1]) or 'none'} and init made "
            f"{', '.join(shapes[0])}; give the optimizer an init: fedopt.Optimizer(update, init)"
        )
    return after
