"""The weighted mean, of full vectors and of sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedopt.engine.aggregate import BLOCK, BlockedMean
from fedopt.models.sparse_rows import SparseRows

quick = settings(deadline=None, derandomize=True, max_examples=60)


@quick
@given(st.integers(1, 32), st.integers(0, 2**32 - 1))
def test_blocked_mean_is_the_weighted_mean(clients: int, seed: int):
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0.1, 500, clients)
    vectors = draw.uniform(-1, 1, (clients, 2, 7)).astype(np.float32)
    mean = BlockedMean()
    for weight, pair in zip(weights, vectors, strict=True):
        mean.add(float(weight), [torch.from_numpy(v) for v in pair])
    value = mean.value()
    assert value is not None and len(value) == 2
    for actual, column in zip(value, vectors.swapaxes(0, 1).astype(np.float64), strict=True):
        assert_allclose(actual.numpy(), np.average(column, axis=0, weights=weights), atol=1e-6, rtol=0)


@quick
@given(st.lists(st.integers(1, 600), min_size=1, max_size=40), st.integers(-(2**10), 2**10))
def test_mean_of_equal_vectors_is_that_vector(weights: list[int], eighths: int):
    """Products and sums of these numbers are exact in float32, so the mean must be too."""
    mean = BlockedMean()
    for weight in weights:
        mean.add(float(weight), [torch.full((3,), eighths / 8)])
    assert torch.equal(mean.value()[0], torch.full((3,), eighths / 8))
    assert (mean.weight, mean.count) == (sum(weights), len(weights))


def summed_by_hand(weight: float, blocks: list[list[torch.Tensor]]) -> torch.Tensor:
    """Sum each block in order, then add the blocks in order."""
    total = None
    for block in blocks:
        part = weight * block[0]
        for v in block[1:]:
            part = part + weight * v
        total = part if total is None else total + part
    return total


def test_clients_are_added_in_blocks_of_eight_and_the_blocks_in_order():
    assert BLOCK == 8
    vectors = list(torch.rand(21, 50, generator=torch.Generator().manual_seed(0)) * 1000)
    mean = BlockedMean()
    for v in vectors:
        mean.add(4.0, [v])
    expected = summed_by_hand(4.0, [vectors[:8], vectors[8:16], vectors[16:]]) / 84
    assert torch.equal(mean.value()[0], expected)
    assert not torch.equal(summed_by_hand(4.0, [vectors]) / 84, expected), "the order matters"


@pytest.mark.parametrize("out", [0, 3, 7, 8, 15, 19])
def test_skipped_client_keeps_its_position_in_the_block(out: int):
    vectors = list(torch.rand(20, 50, generator=torch.Generator().manual_seed(1)) * 1000)
    mean = BlockedMean()
    for i, v in enumerate(vectors):
        mean.skip() if i == out else mean.add(4.0, [v])
    blocks = [[vectors[i] for i in range(a, min(a + 8, 20)) if i != out] for a in (0, 8, 16)]
    assert torch.equal(mean.value()[0], summed_by_hand(4.0, blocks) / 76)
    assert (mean.weight, mean.count) == (76, 19)


def test_mean_without_clients_is_none():
    mean = BlockedMean()
    for _ in range(9):
        mean.skip()
    assert mean.value() is None


@given(data=st.data(), clients=st.integers(1, 2 * BLOCK + 3))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_mean_of_sparse_rows_equals_mean_of_full_vectors(data: st.DataObject, clients: int) -> None:
    height, width, rest = 6, 3, 2
    dense_mean, sparse_mean = BlockedMean(), BlockedMean()
    for _ in range(clients):
        rows = sorted(data.draw(st.sets(st.integers(0, height - 1))))
        sparse = SparseRows(torch.tensor(rows, dtype=torch.int64), height, width, rest)
        values = torch.tensor(
            data.draw(st.lists(st.floats(-1e3, 1e3, width=32), min_size=sparse.size, max_size=sparse.size))
        )
        weight = data.draw(st.integers(1, 50))
        if data.draw(st.booleans()) and clients > 1:
            dense_mean.skip()
            sparse_mean.skip()
            continue
        dense = torch.zeros(sparse.full_size)
        sparse.put(dense, values)
        assert torch.equal(sparse.take(dense), values)
        dense_mean.add(weight, [dense, 2 * dense])
        sparse_mean.add(weight, [values, 2 * values], sparse)
    expected, actual = dense_mean.value(), sparse_mean.value()
    assert (expected is None) == (actual is None)
    if expected is not None and actual is not None:
        assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))
