"""The weighted mean, of full vectors and of sparse rows."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedopt.engine.aggregate import BLOCK, BlockedMean, BlockSum
from fedopt.models.sparse_rows import SparseRows

quick = settings(deadline=None, derandomize=True, max_examples=60)


def mean_in_blocks(clients: list[tuple]) -> BlockedMean:
    """Return the mean of clients (the arguments of `add`) in blocks of eight."""
    mean = BlockedMean()
    for start in range(0, len(clients), BLOCK):
        block = BlockSum()
        for client in clients[start : start + BLOCK]:
            block.add(*client)
        mean.add_block(block)
    return mean


@quick
@given(st.integers(1, 32), st.integers(0, 2**32 - 1))
def test_blocked_mean_is_the_weighted_mean(clients: int, seed: int):
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0.1, 500, clients)
    vectors = draw.uniform(-1, 1, (clients, 2, 7)).astype(np.float32)
    pairs = [[torch.from_numpy(v) for v in pair] for pair in vectors]
    value = mean_in_blocks(list(zip(map(float, weights), pairs, strict=True))).value()
    assert value is not None and len(value) == 2
    for actual, column in zip(value, vectors.swapaxes(0, 1).astype(np.float64), strict=True):
        assert_allclose(actual.numpy(), np.average(column, axis=0, weights=weights), atol=1e-6, rtol=0)


@quick
@given(st.lists(st.integers(1, 600), min_size=1, max_size=40), st.integers(-(2**10), 2**10))
def test_mean_of_equal_vectors_is_that_vector(weights: list[int], eighths: int):
    """Products and sums of these numbers are exact in float32, so the mean must be too."""
    mean = mean_in_blocks([(float(weight), [torch.full((3,), eighths / 8)]) for weight in weights])
    assert torch.equal(mean.value()[0], torch.full((3,), eighths / 8))
    assert (mean.weight, mean.count) == (sum(weights), len(weights))


def test_mean_without_clients_is_none():
    mean = BlockedMean()
    mean.add_block(BlockSum())
    assert mean.value() is None


@given(data=st.data(), clients=st.integers(1, 2 * BLOCK + 3))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_mean_of_sparse_rows_equals_mean_of_full_vectors(data: st.DataObject, clients: int) -> None:
    height, width, rest = 6, 3, 2
    full, with_rows = [], []
    for _ in range(clients):
        rows = sorted(data.draw(st.sets(st.integers(0, height - 1))))
        sparse = SparseRows(torch.tensor(rows, dtype=torch.int64), height, width, rest)
        values = torch.tensor(
            data.draw(st.lists(st.floats(-1e3, 1e3, width=32), min_size=sparse.size, max_size=sparse.size))
        )
        weight = data.draw(st.integers(1, 50))
        if data.draw(st.booleans()) and clients > 1:
            continue
        dense = torch.zeros(sparse.full_size)
        sparse.put(dense, values)
        assert torch.equal(sparse.take(dense), values)
        full.append((weight, [dense, 2 * dense]))
        with_rows.append((weight, [values, 2 * values], sparse))
    expected, actual = mean_in_blocks(full).value(), mean_in_blocks(with_rows).value()
    assert (expected is None) == (actual is None)
    if expected is not None and actual is not None:
        assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))
