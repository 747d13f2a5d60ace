"""Outputs of a model that do not match the labels, and clients with data of another form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_clients import CLASSES, CLIENTS, FEATURES, TEST, assert_refused, examples, linear, make_task, train
from torch import nn

import fedopt
from fedopt.engine.mismatch import explained_mismatch
from fedopt.errors import ModelError, WorkerError
from fedopt.tasks import Task


@pytest.mark.parametrize("executor", ["serial", "vectorised"])
def test_label_beyond_the_outputs_names_client_and_remedy(executor: str) -> None:
    points, labels = examples("client2")
    labels = labels.copy()
    labels[3] = 12
    task = make_task(linear, clients={**CLIENTS, "client2": (points, labels)})
    with pytest.raises(ModelError) as caught:
        train(task, config={"clients_per_round": 6}, executor=executor)
    assert (caught.value.what, caught.value.client, caught.value.round) == ("outputs", "client2", 1)
    message = str(caught.value)
    assert "\n" not in message and "3 outputs" in message and "12" in message and "at least 13" in message


def test_negative_label_is_refused_in_the_test_set() -> None:
    points, labels = TEST
    with pytest.raises(ModelError, match="label is -1") as caught:
        train(make_task(linear, test=(points, np.where(labels == 0, -1, labels))))
    assert caught.value.client is None


def regression(model: nn.Module) -> fedopt.RunResult:
    points = np.random.default_rng(0).normal(size=(8, FEATURES)).astype(np.float32)
    task = fedopt.own_task(model, F.mse_loss, {"a": (points, points[:, 0])}, (points, points[:, 0]))
    return fedopt.run(task, rounds=1, config={"clients_per_round": 1})


def test_loss_that_would_broadcast_is_refused() -> None:
    """torch only warns: (8, 1) and (8,) would be compared in all 64 pairs."""
    with pytest.raises(ModelError, match=r"\(8, 1\).*\(8,\).*squeeze") as caught:
        regression(nn.Linear(FEATURES, 1))
    assert caught.value.what == "outputs"
    regression(nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(0)))


@pytest.mark.parametrize(
    ("outputs", "targets", "text"),
    [
        (torch.zeros(5), torch.zeros(5, dtype=torch.long), "outputs (examples, classes)"),
        (torch.zeros(5, 3), torch.zeros(5, 1, dtype=torch.long), "labels need shape (examples,)"),
        (torch.zeros(4, 3), torch.zeros(5, dtype=torch.long), "outputs (examples, classes)"),
        (torch.zeros(5, 2), torch.zeros(5, 3), "(5, 2)"),
    ],
)
def test_shapes_that_do_not_match_are_named(outputs: torch.Tensor, targets: torch.Tensor, text: str) -> None:
    with pytest.raises(ModelError) as caught, explained_mismatch(outputs, targets):
        raise ValueError("anything")
    assert text in str(caught.value) and str(tuple(targets.shape)) in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.zeros(5, CLASSES), torch.zeros(5, dtype=torch.long)),
        (torch.zeros(5, CLASSES, 7), torch.zeros(5, 7, dtype=torch.long)),  # classes of a sequence
        (torch.zeros(5, 2), torch.zeros(5, 2)),
        ({"logits": torch.zeros(1)}, torch.zeros(5)),
    ],
)
def test_other_errors_of_a_loss_are_not_changed(outputs: object, targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="anything"), explained_mismatch(outputs, targets):
        raise ValueError("anything")


def with_examples(client: str, inputs: np.ndarray, targets: np.ndarray) -> Task:
    return make_task(clients=CLIENTS | {client: (inputs, targets)})


def test_client_with_another_width_is_named_with_both_shapes() -> None:
    task = with_examples("client2", np.ones((5, FEATURES + 1), np.float32), np.zeros(5, np.int64))
    with pytest.raises(WorkerError) as error:
        train(task, config={"clients_per_round": 6})
    assert error.value.client == "client2"
    assert str(error.value).endswith("its inputs have shape (n, 5), those of the test set (n, 4)")


def test_client_with_another_type_of_labels_is_named_with_both_types() -> None:
    task = with_examples("client2", np.ones((5, FEATURES), np.float32), np.zeros(5))
    with pytest.raises(ModelError) as error:
        train(task, config={"clients_per_round": 6})
    assert error.value.client == "client2"
    assert str(error.value).endswith("its targets are of type float64, those of the test set int64")


def test_test_set_with_another_width_is_compared_with_the_first_client() -> None:
    task = make_task(test=(np.ones((5, FEATURES + 1), np.float32), np.zeros(5, np.int64)))
    with pytest.raises(WorkerError) as error:
        train(task)
    assert str(error.value).endswith("its inputs have shape (n, 5), those of the first client (n, 4)")


def test_regression_loss_on_class_labels_is_explained() -> None:
    with pytest.raises(ModelError) as error:
        train(make_task(loss=F.mse_loss))
    assert error.value.what == "outputs" and "cross_entropy" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"loss": lambda outputs, targets: 1.0}, "loss"),
        ({"metrics": {"share": lambda outputs, targets: 0.5}}, "share"),
        ({"model": lambda: 3}, "model"),
    ],
)
def test_function_with_a_wrong_return_type_is_named(changes: dict[str, Any], what: str) -> None:
    assert_refused(lambda: train(make_task(**changes)), ModelError, what=what)
