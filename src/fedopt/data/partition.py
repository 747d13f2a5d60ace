"""Partition examples among clients. A partition is a list with the positions of each client's examples.

Every example is used exactly once. `dirichlet` (LDA, for CIFAR-10) and `pachinko` (for CIFAR-100) follow the
paper: every client has its own label distribution, and examples are drawn without replacement. Symbols are
the paper's: S are the remaining examples, G the labels with remaining examples, theta the multinomial of a
client, D its examples.

Probabilities are stored as logarithms. With a small alpha, most probabilities are below the smallest float,
but their ratios matter once the likely labels have no examples left.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.errors import DataError

Labels = Any  # an array, a tensor or a sequence with one label per example: integers or text
LabelArray = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def dirichlet(labels: Labels, clients: int, alpha: float, seed: int = 0) -> list[Positions]:
    """Partition by latent Dirichlet allocation over the labels (Hsu et al. 2019).

    Args:
        labels: one label for each example: integers or text.
        clients: number of clients.
        alpha: concentration. A small number gives most clients few labels; a large one gives all clients
            the same mixture.
        seed: fixes the result.

    Returns:
        The positions of each client's examples, in the order in which they were drawn. Sizes are equal, or
        differ by one if `clients` does not divide the number of examples.

    Examples:
        >>> parts = fedopt.partition.dirichlet([7, 7, 7, 8, 8], clients=2, alpha=0.1)
        >>> [len(part) for part in parts], np.sort(np.concatenate(parts)).tolist()
        ([3, 2], [0, 1, 2, 3, 4])
    """
    labels = _label_codes(labels)
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
    fine: Labels, coarse: Labels, clients: int, alpha: float, beta: float, seed: int = 0
) -> list[Positions]:
    """Partition by Pachinko allocation, the paper's algorithm "Creating a federated CIFAR-100".

    A client draws a multinomial theta_r over coarse labels from Dir(alpha), and for each coarse label c a
    multinomial theta_c over its fine labels from Dir(beta).

    Args:
        fine: one label for each example.
        coarse: the coarse label of each example. A fine label belongs to one coarse label.
        clients: number of clients.
        alpha: concentration over coarse labels.
        beta: concentration over the fine labels of a coarse label.
        seed: fixes the result.

    Returns:
        The positions of each client's examples, as `dirichlet` returns them.

    Examples:
        >>> fine, coarse = ["cat", "dog", "oak", "oak"], ["animal", "animal", "tree", "tree"]
        >>> parts = fedopt.partition.pachinko(fine, coarse, clients=2, alpha=0.1, beta=10.0)
        >>> np.sort(np.concatenate(parts)).tolist()
        [0, 1, 2, 3]
    """
    fine, coarse = _label_codes(fine), _label_codes(coarse)
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


def iid(examples: Labels | int, clients: int, seed: int = 0) -> list[Positions]:
    """Partition at random into clients of equal size, up to one example.

    Args:
        examples: the number of examples, or their labels or any other sequence with one entry for each.
        clients: number of clients.
        seed: fixes the result.

    Returns:
        The positions of each client's examples.

    Examples:
        >>> [len(part) for part in fedopt.partition.iid(10, clients=3)]
        [4, 3, 3]
    """
    total = len(examples) if hasattr(examples, "__len__") else operator.index(examples)
    order = rng.generator(int(seed), "partition", "iid").permutation(total)
    return np.split(order, np.cumsum(_sizes(total, clients))[:-1])


def by_label(labels: Labels, clients: int, labels_per_client: int, seed: int = 0) -> list[Positions]:
    """Partition so that every client has exactly `labels_per_client` different labels.

    Labels are assigned at random, each to the same number of clients up to one. The examples of a label are
    divided equally among its clients, up to one.

    Args:
        labels: one label for each example: integers or text.
        clients: number of clients.
        labels_per_client: number of labels of a client.
        seed: fixes the result.

    Returns:
        The positions of each client's examples.

    Examples:
        >>> parts = fedopt.partition.by_label([5, 5, 6, 6, 7, 7], clients=3, labels_per_client=1)
        >>> sorted(sorted(part.tolist()) for part in parts)
        [[0, 1], [2, 3], [4, 5]]
    """
    codes = _label_codes(labels)
    draw = rng.generator(int(seed), "partition", "by_label")
    S = _by_label(codes, draw)
    if not 1 <= labels_per_client <= len(S):
        raise DataError(
            f"labels_per_client must be 1 to {len(S)}, the number of labels, got {labels_per_client}"
        )
    if clients * labels_per_client < len(S):
        raise DataError(
            f"{clients} clients with {labels_per_client} labels each cannot hold all {len(S)} labels"
        )
    shares, more = divmod(clients * labels_per_client, len(S))
    order = draw.permutation(list(S))
    left = {int(y): shares + (k < more) for k, y in enumerate(order)}  # clients still to serve
    short = next((y for y, share in left.items() if len(S[y]) < share), None)
    if short is not None:
        name = _values(labels)[S[short][0]]
        raise DataError(
            f"label {name} has {len(S[short])} examples for {left[short]} clients; use fewer clients or "
            "fewer labels per client"
        )
    piles = {y: iter(np.array_split(np.array(S[y], dtype=np.int64), left[y])) for y in S}
    parts = []
    for _ in range(clients):
        ties = draw.random(len(left))
        ranked = sorted(zip(left, ties, strict=True), key=lambda entry: (-left[entry[0]], entry[1]))
        chosen = [y for y, _ in ranked[:labels_per_client]]  # the labels with most clients left
        for y in chosen:
            left[y] -= 1
        parts.append(np.concatenate([next(piles[y]) for y in chosen]))
    return parts


def by_column(values: Labels) -> dict[str, Positions]:
    """Partition by the values of a column: one client for each value, such as a user or a hospital.

    Args:
        values: one value for each example: integers or text.

    Returns:
        The positions of the examples with each value.

    Examples:
        >>> fedopt.partition.by_column(["north", "south", "north"])
        {'north': array([0, 2]), 'south': array([1])}
    """
    column = _values(values)
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise DataError("the column has missing values; every example needs a client")
    names, owners = np.unique(column, return_inverse=True)
    order = np.argsort(owners, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(owners))[:-1])
    return dict(zip(map(str, names.tolist()), parts, strict=True))


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


def _values(values: Labels) -> npt.NDArray[Any]:
    """Convert one value per example to an array of integers, floats or text."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(values if hasattr(values, "__array__") else list(values))
    if array.dtype.kind == "O":
        if not all(isinstance(value, str) for value in array.flat):
            raise DataError("values are missing or of several types; expected integers or text")
        array = array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise DataError(f"expected one integer or text per example, got {array.dtype} of shape {array.shape}")
    return array


def _label_codes(labels: Labels) -> LabelArray:
    """Return integer labels as they are, and number other labels in sorted order."""
    array = _values(labels)
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind == "f" and not (array == np.rint(array)).all():
        raise DataError("labels must be integers or text, and some are fractions or missing")
    return np.unique(array, return_inverse=True)[1]


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
