"""Partitions: every example is used once, outcomes have their exact probabilities, nothing underflows."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.data.partition import (
    Multinomial,
    by_column,
    by_label,
    dirichlet,
    iid,
    log_dirichlet,
    pachinko,
)
from fedopt.errors import DataError

Ints = npt.NDArray[np.int64]
Outcome = tuple[tuple[int, ...], ...]  # the labels of every client, in the order of drawing

CIFAR100_FINE = np.repeat(np.arange(100), 500)
CIFAR100_COARSE = CIFAR100_FINE // 5


def assert_partition(parts: list[Ints], examples: int, clients: int) -> None:
    assert len(parts) == clients
    assert all(part.dtype == np.int64 for part in parts)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(examples))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


def count_labels(parts: list[Ints], labels: Ints) -> Ints:
    return np.array([len(np.unique(labels[part])) for part in parts])


# The algorithms, against a hand-worked case and against exact probabilities


def test_pachinko_matches_a_case_worked_by_hand() -> None:
    """Coarse label 0 has the fine label 5 with one example, coarse label 1 the fine label 3 with three.

    Two clients take two examples each, and with alpha = 0.001 a client's theta_r is all but one-hot.
    Client 1's theta_r points to 0 with probability 1/2: it takes 5, which empties S_5 and S_0; both nodes
    leave G, theta_r is renormalised to coarse label 1 alone, so the next label is 3, and client 2 gets 3, 3.
    Otherwise client 1 takes 3, 3, and client 2's theta_r points to either: it takes 5 and then 3, or it
    takes 3, which empties S_3, and then 5.
    """
    fine, coarse = np.array([5, 3, 3, 3]), np.array([0, 1, 1, 1])
    seen = Counter(
        tuple(tuple(fine[part].tolist()) for part in pachinko(fine, coarse, 2, 1e-3, 10.0, seed))
        for seed in range(2000)
    )
    assert set(seen) <= {((5, 3), (3, 3)), ((3, 3), (5, 3)), ((3, 3), (3, 5)), ((3, 5), (3, 3))}
    assert abs(seen[((5, 3), (3, 3))] - 1000) < 110  # 5 standard deviations
    assert abs(seen[((3, 3), (5, 3))] - 500) < 100
    assert abs(seen[((3, 3), (3, 5))] - 500) < 100
    assert seen[((3, 5), (3, 3))] < 20  # only where theta_r is not one-hot: about 1 in 1000


def polya(counts: Counter[int], gamma: Fraction, children: list[int]) -> dict[int, Fraction]:
    """Return the probabilities of the next Dirichlet-multinomial draw of a client: (gamma + n_k) / sum.

    A Dirichlet distribution renormalised without a category is the Dirichlet distribution of the other
    categories, so labels without examples are omitted.
    """
    total = sum(gamma + counts[k] for k in children)
    return {k: (gamma + counts[k]) / total for k in children}


def exact_pachinko(
    stock: dict[int, int], parent: dict[int, int], sizes: list[int], alpha: Fraction, beta: Fraction
) -> dict[Outcome, Fraction]:
    """Return the probability of every outcome of the paper's algorithm, by enumeration."""
    outcomes: dict[Outcome, Fraction] = {}

    def branch(probability: Fraction, left: dict[int, int], done: Outcome, current: tuple[int, ...]) -> None:
        if len(current) == sizes[len(done)]:
            done, current = (*done, current), ()
        if len(done) == len(sizes):
            outcomes[done] = outcomes.get(done, Fraction(0)) + probability
            return
        alive = [y for y, n in left.items() if n]
        n_coarse, n_fine = Counter(parent[y] for y in current), Counter(current)
        for c, p_c in polya(n_coarse, alpha, sorted({parent[y] for y in alive})).items():
            for y, p_y in polya(n_fine, beta, [y for y in alive if parent[y] == c]).items():
                branch(probability * p_c * p_y, {**left, y: left[y] - 1}, done, (*current, y))

    branch(Fraction(1), stock, (), ())
    return outcomes


CASES = {
    "two levels": ({0: 1, 1: 2, 2: 2, 3: 1}, {0: 0, 1: 0, 2: 1, 3: 1}, [2, 2, 2]),
    "a coarse label that dies": ({0: 1, 1: 1, 2: 3}, {0: 0, 1: 0, 2: 1}, [3, 2]),
    "one level": ({0: 3, 1: 1, 2: 2}, {0: 0, 1: 1, 2: 2}, [3, 3]),
}


@pytest.mark.parametrize(("alpha", "beta"), [("1/10", "10"), ("1", "1/2")])
@pytest.mark.parametrize("case", CASES)
def test_outcomes_have_their_exact_probabilities(case: str, alpha: str, beta: str) -> None:
    stock, parent, sizes = CASES[case]
    exact = exact_pachinko(stock, parent, sizes, Fraction(alpha), Fraction(beta))
    assert sum(exact.values()) == 1
    fine = np.repeat(list(stock), list(stock.values()))
    coarse = np.array([parent[y] for y in fine.tolist()])
    trials = 3000
    a, b = float(Fraction(alpha)), float(Fraction(beta))
    seen: Counter[Outcome] = Counter()
    for seed in range(trials):
        parts = (
            dirichlet(fine, len(sizes), a, seed)
            if case == "one level"
            else pachinko(fine, coarse, len(sizes), a, b, seed)
        )
        seen[tuple(tuple(fine[part].tolist()) for part in parts)] += 1
    assert set(seen) <= set(exact)
    for outcome, probability in exact.items():
        p = float(probability)
        assert abs(seen[outcome] - trials * p) < 5 * np.sqrt(trials * p * (1 - p)) + 1, outcome


def test_examples_of_a_label_are_drawn_uniformly() -> None:
    first = Counter(int(dirichlet(np.zeros(4, dtype=np.int64), 4, 0.1, seed)[0][0]) for seed in range(2000))
    assert all(abs(first[i] - 500) < 100 for i in range(4))


def test_renormalize_matches_the_papers_algorithm() -> None:
    theta = Multinomial([4, 7, 9], np.log([0.5, 0.3, 0.2]))
    assert [theta.pick(u) for u in (0.0, 0.49, 0.51, 0.79, 0.81, 0.999)] == [4, 4, 7, 7, 9, 9]
    theta.renormalize(4)  # a = 0.3 + 0.2
    assert theta.labels == [7, 9]
    np.testing.assert_allclose(theta.probabilities, [0.6, 0.4])
    theta.renormalize(7)
    np.testing.assert_allclose(theta.probabilities, [1.0])
    assert theta.pick(0.999) == 9


def test_tiny_probabilities_keep_their_ratio() -> None:
    """exp(-2000) underflows, but the ratio of the other two, e to 1, must remain."""
    theta = Multinomial([0, 1, 2], np.array([0.0, -2000.0, -2001.0]))
    np.testing.assert_array_equal(theta.probabilities, [1.0, 0.0, 0.0])
    theta.renormalize(0)
    np.testing.assert_allclose(theta.probabilities, [np.e / (1 + np.e), 1 / (1 + np.e)])


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_dirichlet_draws_have_the_right_moments(gamma: float) -> None:
    """Mean 1/k and variance (k - 1) / (k^2 (k gamma + 1))."""
    draw, k = np.random.default_rng(3), 5
    logs = np.stack([log_dirichlet(draw, gamma, k) for _ in range(8000)])
    theta = np.exp(logs - logs.max(axis=1, keepdims=True))
    theta /= theta.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(theta.mean(axis=0), 1 / k, atol=0.03)
    np.testing.assert_allclose(theta.var(axis=0), (k - 1) / (k**2 * (k * gamma + 1)), rtol=0.1)


# Extreme parameters


concentrations = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
stocks = st.lists(st.one_of(st.integers(1, 3), st.integers(1, 80)), min_size=1, max_size=12)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(stocks, st.integers(1, 4), st.integers(1, 300), concentrations, concentrations, st.integers(0, 2**70))
def test_every_example_is_used_once_for_all_parameters(
    stock: list[int], siblings: int, clients: int, alpha: float, beta: float, seed: int
) -> None:
    fine = np.repeat(np.arange(len(stock)), stock)
    clients = min(clients, len(fine))
    assert_partition(pachinko(fine, fine // siblings, clients, alpha, beta, seed), len(fine), clients)
    assert_partition(dirichlet(fine, clients, alpha, seed), len(fine), clients)


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_dirichlet_draws_are_finite(gamma: float) -> None:
    logs = log_dirichlet(np.random.default_rng(0), gamma, 10_000)
    assert np.isfinite(logs).all()


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
@pytest.mark.parametrize("beta", [1e-3, 1e3])
def test_cifar100_is_partitioned_with_extreme_parameters(alpha: float, beta: float) -> None:
    assert_partition(pachinko(CIFAR100_FINE, CIFAR100_COARSE, 500, alpha, beta, 0), 50_000, 500)


# The sizes of the real data


def test_cifar100_labels_per_client_match_the_paper() -> None:
    """Most clients have 20 to 30 labels, some over 40, some very few.

    Over 40 is expected for 0.9 of 500 clients (simulated with NumPy's Dirichlet sampler), so three partitions
    are checked together.
    """
    counts = []
    for seed in (1, 2, 3):
        parts = pachinko(CIFAR100_FINE, CIFAR100_COARSE, 500, 0.1, 10.0, seed)
        assert_partition(parts, 50_000, 500)
        counts.append(count_labels(parts, CIFAR100_FINE))
    unique = np.concatenate(counts)
    assert np.mean((20 <= unique) & (unique <= 30)) > 0.5
    assert 20 <= np.median(unique) <= 24
    assert unique.max() > 40
    assert unique.min() < 10


def test_cifar100_test_clients_have_the_same_distribution() -> None:
    fine = np.repeat(np.arange(100), 100)
    parts = pachinko(fine, fine // 5, 100, 0.1, 10.0, 0)
    assert_partition(parts, 10_000, 100)
    assert 18 <= np.median(count_labels(parts, fine)) <= 25


def test_fine_labels_of_a_coarse_label_occur_together() -> None:
    """For example, a client with dolphins is likely to have whales."""
    parts = pachinko(CIFAR100_FINE, CIFAR100_COARSE, 500, 0.1, 10.0, 0)
    counts = np.stack([np.bincount(CIFAR100_FINE[part], minlength=100) for part in parts[:400]])
    correlation = np.corrcoef(counts.T)
    sisters = (np.arange(100)[:, None] // 5 == np.arange(100) // 5) & ~np.eye(100, dtype=bool)
    strangers = np.arange(100)[:, None] // 5 != np.arange(100) // 5
    assert correlation[sisters].mean() > 0.5
    assert abs(correlation[strangers].mean()) < 0.1


def test_cifar10_clients_have_few_labels() -> None:
    labels = np.repeat(np.arange(10), 5000)
    parts = dirichlet(labels, 500, 0.1, 0)
    assert_partition(parts, 50_000, 500)
    unique = count_labels(parts, labels)
    assert 3 <= np.median(unique) <= 4 and unique.max() <= 9
    largest = np.array([np.bincount(labels[part]).max() for part in parts])
    assert np.median(largest) > 55  # of 100 examples


# Seeds and invalid arguments


def test_partition_depends_only_on_the_seed() -> None:
    fine = np.repeat(np.arange(20), 30)
    for partition in (
        lambda s: dirichlet(fine, 10, 0.1, s),
        lambda s: pachinko(fine, fine // 4, 10, 0.1, 10.0, s),
    ):
        same = [part.tolist() for part in partition(5)]
        assert same == [part.tolist() for part in partition(5)]
        assert same == [part.tolist() for part in partition(np.int64(5))]
        assert same != [part.tolist() for part in partition(6)]


def test_labels_may_have_any_integer_type() -> None:
    fine = np.repeat(np.arange(20), 30)
    wide = dirichlet(fine, 10, 0.1, 0)
    narrow = dirichlet(fine.astype(np.uint8), 10, 0.1, 0)
    assert [part.tolist() for part in wide] == [part.tolist() for part in narrow]


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 0},
        {"clients": 5},
        {"alpha": 0.0},
        {"alpha": float("nan")},
        {"beta": float("inf")},
        {"coarse": np.array([0, 0, 1])},
        {"coarse": np.array([0, 1, 1, 1])},
    ],
)
def test_invalid_arguments_are_rejected(changes: dict[str, object]) -> None:
    arguments = {
        "fine": np.array([0, 0, 1, 1]),
        "coarse": np.array([0, 0, 1, 1]),
        "clients": 2,
        "alpha": 0.1,
        "beta": 10.0,
        "seed": 0,
    }
    assert_partition(pachinko(**arguments), 4, 2)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        pachinko(**{**arguments, **changes})  # type: ignore[arg-type]


# Other partitions


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2**70))
def test_iid_uses_every_example_once(examples: int, clients: int, seed: int) -> None:
    clients = min(clients, examples)
    parts = iid(examples, clients, seed)
    assert_partition(parts, examples, clients)
    again = iid(np.zeros(examples), clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_iid_puts_an_example_on_every_client_with_equal_probability() -> None:
    owners = Counter(next(k for k, part in enumerate(iid(4, 4, seed)) if 0 in part) for seed in range(2000))
    assert all(abs(owners[k] - 500) < 100 for k in range(4))


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data(), st.integers(1, 8), st.integers(1, 30), st.integers(0, 2**70))
def test_by_label_gives_every_client_its_number_of_labels(
    data: st.DataObject, classes: int, clients: int, seed: int
) -> None:
    each = data.draw(st.integers(-(-classes // clients), classes))
    needed = -(-clients * each // classes)  # clients of a label, at most
    stock = data.draw(st.lists(st.integers(needed, needed + 9), min_size=classes, max_size=classes))
    labels = np.repeat(np.arange(classes) * 7 - 3, stock)
    parts = by_label(labels, clients, each, seed)
    assert len(parts) == clients
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(labels)))
    assert count_labels(parts, labels).tolist() == [each] * clients
    for label in np.unique(labels):
        shares = [n for part in parts if (n := int((labels[part] == label).sum()))]
        assert len(shares) in (clients * each // classes, needed) and max(shares) - min(shares) <= 1
    again = by_label(labels, clients, each, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_by_label_combines_labels_at_random() -> None:
    """Two of four labels for each of six clients: every one of the six combinations occurs."""
    labels = np.repeat(np.arange(4), 30)
    pairs = Counter(
        tuple(np.unique(labels[part]).tolist()) for seed in range(50) for part in by_label(labels, 6, 2, seed)
    )
    assert len(pairs) == 6 and min(pairs.values()) > 20


def test_by_column_makes_a_client_of_every_value() -> None:
    parts = by_column(np.array([30, 4, 30, 30]))
    assert {name: rows.tolist() for name, rows in parts.items()} == {"4": [1], "30": [0, 2, 3]}


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.text(max_size=3), min_size=1, max_size=30))
def test_by_column_uses_every_example_once(values: list[str]) -> None:
    parts = by_column(values)
    assert np.sort(np.concatenate(list(parts.values()))).tolist() == list(range(len(values)))


@pytest.mark.parametrize("make", [dirichlet, lambda labels, c, a, s: by_label(labels, c, 2, s)])
def test_text_labels_tensors_and_lists_are_partitioned_like_integers(make) -> None:
    integers = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 2])
    texts = np.array(["ant", "bee", "cat"])[integers]
    expected = [part.tolist() for part in make(integers, 3, 0.5, 1)]
    for labels in (
        texts,
        texts.tolist(),
        texts.astype(object),
        integers.tolist(),
        torch.from_numpy(integers),
    ):
        assert [part.tolist() for part in make(labels, 3, 0.5, 1)] == expected


@pytest.mark.parametrize(
    "action",
    [
        lambda: iid(3, 4),
        lambda: iid(3, 0),
        lambda: by_label([0, 1], 2, 3),
        lambda: by_label([0, 1, 2], 1, 2),
        lambda: by_label([0, 0, 1], 4, 1),
        lambda: by_column([1.0, float("nan")]),
        lambda: by_column(["a", None]),
        lambda: dirichlet([0.5, 1.0], 2, 0.1),
        lambda: dirichlet(np.zeros((2, 2)), 2, 0.1),
    ],
)
def test_impossible_partitions_are_refused(action) -> None:
    with pytest.raises(DataError) as error:
        action()
    assert "\n" not in str(error.value)
