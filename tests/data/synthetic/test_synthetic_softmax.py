"""Synthetic(alpha, beta) has the moments of its definition."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedopt.data.synthetic import softmax
from fedopt.errors import DataError, FedoptError

CLIENTS = 400
Columns = dict[str, npt.NDArray[np.generic]]


@cache
def population(beta: float) -> list[Columns]:
    return [softmax.examples("train", client, CLIENTS, 1.0, beta) for client in range(CLIENTS)]  # type: ignore[misc]


def client_means(beta: float) -> npt.NDArray[np.float64]:
    return np.stack([columns["features"].mean(0) for columns in population(beta)])


def test_columns_and_sizes_agree_in_both_splits() -> None:
    for split in ("train", "test"):
        sizes = softmax.sizes(split, 7)
        for client in range(7):
            columns = softmax.examples(split, client, 7, 1.0, 1.0)
            assert (
                columns["features"].shape == (sizes[client], 60) and columns["features"].dtype == np.float32
            )
            assert columns["label"].shape == (sizes[client],) and columns["label"].dtype == np.int64
            assert 0 <= columns["label"].min() and columns["label"].max() < 10


def test_sizes_follow_the_log_normal_distribution() -> None:
    """Quantiles of lognormal(4, 2): exp(4) at 50 %, exp(6) at 84.13 %, exp(2) at 15.87 %."""
    total = softmax.sizes("train", 20_000) + softmax.sizes("test", 20_000)
    assert total.min() >= 50
    share = [np.mean(total - 50 < np.exp(quantile)) for quantile in (2, 4, 6)]
    np.testing.assert_allclose(share, [0.1587, 0.5, 0.8413], atol=0.02)


def test_nine_tenths_of_the_examples_are_for_training() -> None:
    train, test = softmax.sizes("train", 100), softmax.sizes("test", 100)
    assert (train == (9 * (train + test)) // 10).all() and test.min() >= 5


def test_variance_of_inputs_within_a_client_is_a_power_of_their_position() -> None:
    """x ~ N(v_k, diag(j^-1.2)), so the mean of the unbiased variances over clients is j^-1.2."""
    variances = np.mean([columns["features"].var(0, ddof=1) for columns in population(1.0)], axis=0)
    np.testing.assert_allclose(variances, np.arange(1, 61) ** -1.2, rtol=0.06)


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_covariance_of_client_means_is_that_of_the_definition(beta: float) -> None:
    """Cov(v_k) = I + beta^2 1 1^T: one common number B_k per client and one per coordinate."""
    covariance = np.cov(client_means(beta).T)
    own = np.eye(60, dtype=bool)
    assert covariance[own].mean() == pytest.approx(1 + beta**2, rel=0.15)
    assert covariance[~own].mean() == pytest.approx(beta**2, rel=0.15)


def test_all_classes_are_equally_common_over_many_clients_and_skewed_within_one() -> None:
    shares = np.stack([np.bincount(c["label"], minlength=10) / len(c["label"]) for c in population(1.0)])
    np.testing.assert_allclose(shares.mean(0), 0.1, atol=0.03)
    assert np.median(shares.max(1)) > 0.4


def test_labels_of_a_client_are_those_of_one_linear_classifier() -> None:
    """A linear classifier that is fitted to 60 % of a large client predicts its other labels."""
    client = int(np.argsort(softmax.sizes("train", 100))[-1])
    columns = softmax.examples("train", client, 100, 1.0, 0.0)
    x, y = (torch.from_numpy(np.array(columns[name])) for name in ("features", "label"))
    train = len(x) * 6 // 10
    w = torch.zeros(61, 10, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=60, line_search_fn="strong_wolfe")
    inputs = torch.cat([x, torch.ones(len(x), 1)], 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(inputs[:train] @ w, y[:train])
        loss.backward()
        return loss

    optimizer.step(closure)
    predicted = (inputs[train:] @ w).argmax(1)
    assert (predicted == y[train:]).float().mean() > 0.9


def test_alpha_does_not_change_the_data() -> None:
    """u_k is added to every weight and bias, so all classes get the same additional score."""
    for client in range(5):
        one, other = (softmax.examples("train", client, 5, alpha, 1.0) for alpha in (0.0, 3.0))
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_client_does_not_depend_on_the_number_of_clients() -> None:
    few, many = (softmax.examples("test", 3, clients, 1.0, 1.0) for clients in (5, 500))
    assert all(np.array_equal(few[name], many[name]) for name in few)


def test_unknown_client_or_split_is_rejected() -> None:
    with pytest.raises(DataError) as caught:
        softmax.examples("train", 5, 5, 1.0, 1.0)
    assert caught.value.client == "5"
    with pytest.raises(FedoptError):
        softmax.sizes("validation", 5)
