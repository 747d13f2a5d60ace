"""Partition labelled examples among clients: Dirichlet (LDA) for CIFAR-10 and Pachinko for CIFAR-100.

Both follow the paper: every client has its own label distribution, and examples are drawn without
replacement, so every example is used exactly once. Symbols are the paper's: S are the remaining examples, G
the labels with remaining examples, theta the multinomial of a client, D its examples.

Probabilities are stored as logarithms. With a small alpha, most probabilities are below the smallest float,
but their ratios matter once the likely labels have no examples left.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.errors import DataError

LabelArray = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def dirichlet(labels: LabelArray, clients: int, alpha: float, seed: int) -> list[Positions]:
    """Partition by latent Dirichlet allocation over the labels (Hsu et al. 2019).

    Return the positions of each client's examples in the order of drawing. Sizes are equal, or differ by one
    if `clients` does not divide the number of examples.

    >>> parts = dirichlet(np.array([7, 7, 7, 8, 8]), clients=2, alpha=0.1, seed=0)
    >>> [len(part) for part in parts], np.sort(np.concatenate(parts)).tolist()
    ([3, 2], [0, 1, 2, 3, 4])
    """
    sizes = _sizes(len(labels), clients)
    _check("alpha", alpha)
    draw = rng.generator(int(seed), "partition", "dirichlet")
    S = _by_label(labels, draw)
    G = sorted(S)
    parts = []
    for N in sizes:
        theta = Multinomial.from_dirichlet(draw, alpha, G)
        D: list[int] = []
        for u in draw.random(N).tolist():
            y = theta.pick(u)
            D.append(S[y].pop())
            if not S[y]:
                G.remove(y)
                theta.renormalize(y)
        parts.append(np.array(D, dtype=np.int64))
    return parts


def pachinko(
    fine: LabelArray, coarse: LabelArray, clients: int, alpha: float, beta: float, seed: int
) -> list[Positions]:
    """Partition by Pachinko allocation, the paper's algorithm "Creating a federated CIFAR-100".

    A client draws a multinomial theta_r over coarse labels from Dir(alpha), and for each coarse label c a
    multinomial theta_c over its fine labels from Dir(beta). Return positions as `dirichlet` does.
    """
    sizes = _sizes(len(fine), clients)
    _check("alpha", alpha)
    _check("beta", beta)
    draw = rng.generator(int(seed), "partition", "pachinko")
    S = _by_label(fine, draw)
    G = _children(fine, coarse)
    parts = []
    for N in sizes:
        theta_r = Multinomial.from_dirichlet(draw, alpha, list(G))
        theta = {c: Multinomial.from_dirichlet(draw, beta, G[c]) for c in G}
        D: list[int] = []
        for u_r, u_c in draw.random((N, 2)).tolist():
            c = theta_r.pick(u_r)
            y = theta[c].pick(u_c)
            D.append(S[y].pop())
            if not S[y]:
                G[c].remove(y)
                theta[c].renormalize(y)
                if not G[c]:
                    del G[c]
                    theta_r.renormalize(c)
        parts.append(np.array(D, dtype=np.int64))
    return parts


class Multinomial:
    """A distribution over labels. Labels can be removed."""

    def __init__(self, labels: list[int], log_weights: Floats) -> None:
        self.labels = list(labels)
        self._log_weights = log_weights
        self._accumulate()

    @classmethod
    def from_dirichlet(cls, draw: np.random.Generator, gamma: float, labels: list[int]) -> Multinomial:
        """Draw from the symmetric Dirichlet distribution Dir(gamma, len(labels))."""
        return cls(labels, log_dirichlet(draw, gamma, len(labels)))

    @property
    def probabilities(self) -> Floats:
        """Probability of each label, (labels,)."""
        return np.diff(self._cumulative, prepend=0.0)

    def pick(self, u: float) -> int:
        """Return the label for a uniform number 0 <= u < 1."""
        return self.labels[bisect_right(self._cumulative, u)]

    def renormalize(self, label: int) -> None:
        """Algorithm "Renormalize": remove `label` and scale the other probabilities to a sum of 1."""
        i = self.labels.index(label)
        del self.labels[i]
        self._log_weights = np.delete(self._log_weights, i)
        self._accumulate()

    def _accumulate(self) -> None:
        if not self.labels:  # no examples are left
            self._cumulative: list[float] = []
            return
        total = np.cumsum(np.exp(self._log_weights - self._log_weights.max()))
        self._cumulative = (total / total[-1]).tolist()


def log_dirichlet(draw: np.random.Generator, gamma: float | Floats, k: int) -> Floats:
    """Return the logarithm of a draw from Dir(gamma, k) up to a constant, (k,). It is always finite.

    `gamma` is one number for the symmetric distribution, or one for each of the k categories. A Dirichlet
    draw is k gamma variates divided by their sum. With E exponential, log Gamma(gamma) has the distribution
    of log Gamma(gamma + 1) - E / gamma, which does not underflow.
    """
    return np.log(draw.standard_gamma(gamma + 1.0, k)) - draw.standard_exponential(k) / gamma


def _by_label(labels: LabelArray, draw: np.random.Generator) -> dict[int, list[int]]:
    """Return S_y for every label y in random order. Taking the last element is a uniform random choice."""
    order = draw.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    names, starts = np.unique(labels[order], return_index=True)
    return {int(y): part.tolist() for y, part in zip(names, np.split(order, starts[1:]), strict=True)}


def _children(fine: LabelArray, coarse: LabelArray) -> dict[int, list[int]]:
    """Return G: the fine labels of each coarse label."""
    if len(fine) != len(coarse):
        raise DataError(
            f"there are {len(fine)} fine and {len(coarse)} coarse labels; each example needs both"
        )
    G: dict[int, list[int]] = {}
    parent: dict[int, int] = {}
    for c, y in np.unique(np.stack([coarse, fine]).astype(np.int64), axis=1).T.tolist():
        if parent.setdefault(y, c) != c:
            raise DataError(
                f"fine label {y} belongs to the coarse labels {parent[y]} and {c}; only one is allowed"
            )
        G.setdefault(c, []).append(y)
    return G


def _sizes(examples: int, clients: int) -> list[int]:
    """Return equal client sizes. The first clients have one more if the number is not divisible."""
    if not 1 <= clients <= examples:
        raise DataError(f"{examples} examples cannot fill {clients} clients; allowed: 1 to {examples}")
    return [examples // clients + (m < examples % clients) for m in range(clients)]


def _check(name: str, value: float) -> None:
    if not (math.isfinite(value) and 1e-6 <= value <= 1e6):
        raise DataError(f"{name} of the Dirichlet distribution must be between 1e-6 and 1e6, got {value}")
