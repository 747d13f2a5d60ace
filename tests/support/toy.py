"""Clients with quadratic objectives, whose gradients are known exactly.

`Toy` implements the `Work` protocol for one client. `play` runs rounds of any algorithm on a list of clients,
with the mean sum_i n_i r_i / sum_i n_i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from fedopt.algorithms import Algorithm, Round, State, Vector


def vector(*values: float) -> Vector:
    return torch.tensor(values, dtype=torch.float32)


class Batch(NamedTuple):
    """f(x) = x.Hx / 2 - h.x, whose gradient is Hx - h."""

    H: torch.Tensor  # (d, d)
    h: Vector  # (d,)


def bowl(curvature: float | Sequence[float], centre: float | Sequence[float]) -> Batch:
    """f(x) = sum_j a_j (x_j - b_j)^2 / 2 up to a constant; its gradient is a (x - b)."""
    a, b = np.atleast_1d(curvature), np.atleast_1d(centre)
    return Batch(torch.tensor(np.diag(a), dtype=torch.float32), torch.tensor(a * b, dtype=torch.float32))


def least_squares(A: np.ndarray, y: np.ndarray) -> Batch:
    """f(x) = |Ax - y|^2 / 2n, the mean over the n rows of A, up to a constant."""
    H, h = A.T @ A / len(y), A.T @ y / len(y)
    return Batch(torch.tensor(H, dtype=torch.float32), torch.tensor(h, dtype=torch.float32))


class Client(NamedTuple):
    """A client's batches B_i, its number of examples n_i and its number of epochs E."""

    data: tuple[Batch, ...]
    examples: int = 1
    epochs: int = 1


@dataclass(frozen=True)
class Toy:
    """One client in one round: the `Work` of an algorithm."""

    data: tuple[Batch, ...]
    round: Round
    kept: tuple[Vector, ...] | None = None
    epochs: int = 1

    @property
    def steps(self) -> int:
        return self.epochs * len(self.data)

    def kept_or(self, *first: Vector) -> tuple[Vector, ...]:
        return first if self.kept is None else self.kept

    def batches(self) -> Iterator[Batch]:
        for _ in range(self.epochs):
            yield from self.data

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        return batch.H @ x - batch.h

    def descend(self, x_i: Vector, batch: Batch, eta_l: float, add: Vector | None = None) -> Vector:
        g = self.gradient(x_i, batch)
        return torch.add(x_i, -(g if add is None else g + add), alpha=eta_l)

    def delta(self, x_i: Vector, x: Vector) -> Vector:
        return x_i - x

    def full_gradient(self, x: Vector) -> Vector:
        return torch.stack([self.gradient(x, b) for b in self.data]).mean(dim=0)


def weighted_mean(results: Sequence[tuple[Vector, ...]], weights: Sequence[int]) -> tuple[Vector, ...]:
    """sum_i n_i r_i / sum_i n_i, for each of the vectors that the clients return.

    >>> weighted_mean([(vector(1.0),), (vector(4.0),)], [1, 2])
    (tensor([3.]),)
    """
    total = sum(weights)
    return tuple(
        torch.stack([n * r for n, r in zip(weights, vectors, strict=True)]).sum(dim=0) / total
        for vectors in zip(*results, strict=True)
    )


class Played(NamedTuple):
    states: list[State]  # the server's state before round 0, 1, ... and after the last
    kept: dict[int, tuple[Vector, ...]]  # the vectors that each client keeps at the end

    @property
    def x(self) -> Any:
        return self.states[-1].x


Rate = float | Callable[[int], float]


def play(
    algorithm: Algorithm,
    clients: Sequence[Client],
    x: Vector,
    rounds: int,
    *,
    eta_l: Rate,
    eta: Rate = 1.0,
    cohort: Callable[[int], Sequence[int]] | None = None,
    kept: Mapping[int, tuple[Vector, ...]] | None = None,
) -> Played:
    """Run rounds of an algorithm from the model x. By default all clients take part in every round."""
    states, held = [algorithm.init(x)], dict(kept or {})
    for t in range(rounds):
        ids = list(cohort(t)) if cohort else list(range(len(clients)))
        rates = [rate(t) if callable(rate) else rate for rate in (eta_l, eta)]
        now = Round(t, rates[0], rates[1], cohort=len(ids), population=len(clients))
        sent = algorithm.sent(states[-1])
        before = [v.clone() for v in (*sent, *(v for i in ids for v in held.get(i, ())))]
        results = {}
        for i in ids:
            work = Toy(clients[i].data, now, held.get(i), clients[i].epochs)
            results[i] = algorithm.client(work, *sent)
            assert len(results[i].returns) == len(algorithm.returns)
            assert len(results[i].keeps) == len(algorithm.keeps)
        mean = weighted_mean([results[i].returns for i in ids], [clients[i].examples for i in ids])
        states.append(algorithm.server(states[-1], mean, now))
        after = [*sent, *(v for i in ids for v in held.get(i, ()))]
        assert all(map(torch.equal, before, after)), "an algorithm changed one of its inputs"
        held |= {i: result.keeps for i, result in results.items()}
    return Played(states, held)


def _sums(clients: Sequence[Client]) -> tuple[Any, Any]:
    """H and h of the objective sum_i n_i F_i / n, in float64; F_i is the mean of the client's batches."""
    n = sum(c.examples for c in clients)
    H, h = (
        sum(c.examples / n * np.mean([b[part].double().numpy() for b in c.data], axis=0) for c in clients)
        for part in (0, 1)
    )
    return H, h


def optimum(clients: Sequence[Client]) -> np.ndarray:
    """The minimizer of sum_i n_i F_i / n."""
    return np.linalg.solve(*_sums(clients))


def excess(clients: Sequence[Client], x: Vector) -> float:
    """The objective at x minus its minimum."""
    H, _ = _sums(clients)
    e = x.double().numpy() - optimum(clients)
    return float(e @ H @ e / 2)


def federation(seed: int = 0, clients: int = 4, d: int = 3) -> list[Client]:
    """Return least-squares clients of different size (1, 2, 3, ... batches of six rows) and optimum."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(clients):
        truth = 1 + rng.normal(size=d) / 4
        A = [rng.normal(size=(6, d)) for _ in range(i + 1)]
        data = tuple(least_squares(a, a @ truth + rng.normal(size=6) / 10) for a in A)
        made.append(Client(data, examples=6 * len(data)))
    return made
