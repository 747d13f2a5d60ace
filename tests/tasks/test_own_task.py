"""User-defined tasks: model, loss, clients and metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_clients import (
    CLASSES,
    CLIENTS,
    FEATURES,
    IDS,
    TEST,
    assert_refused,
    examples,
    linear,
    make_task,
    train,
)
from torch import Tensor, nn

import fedopt
from fedopt.data.importing.datasets import ImportOptions, table_columns
from fedopt.data.importing.importer import import_dataset
from fedopt.errors import ConfigError, DataError, ModelError, UnknownName, WorkerError
from fedopt.tasks.metrics import accuracy


def test_run_equals_federated_averaging_by_hand() -> None:
    """Two rounds in which all clients take one full-batch step: the mean of x - eta_l g, weighted by n_i."""
    clients = {"a": examples("a", 3), "b": examples("b", 9)}
    model = linear()
    config = {"clients_per_round": 2, "client.batch_size": 9, "client.lr": 0.5}
    result = train(make_task(model, clients=clients), config=config)

    for _ in range(2):
        steps = []
        for points, labels in clients.values():
            model.zero_grad()
            F.cross_entropy(model(torch.from_numpy(points)), torch.from_numpy(labels)).backward()
            steps.append([0.5 * p.grad for p in model.parameters()])
        with torch.no_grad():
            for p, step_a, step_b in zip(model.parameters(), *steps, strict=True):
                p -= (3 * step_a + 9 * step_b) / 12
    by_hand = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, by_hand)


def test_module_instance_is_copied_before_training() -> None:
    model = linear()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = train(make_task(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(result.x, torch.cat([v.reshape(-1) for v in before.values()]))


def test_module_instance_and_builder_give_the_same_result() -> None:
    model = linear()

    def build() -> nn.Module:
        copy = linear()
        copy.load_state_dict(model.state_dict())
        return copy

    assert train(make_task(model)).x_sha256 == train(make_task(build)).x_sha256


@pytest.mark.parametrize("part", ["module", "layer"])
@pytest.mark.parametrize("has_directory", [False, True])
def test_function_that_returns_a_trained_module_again_is_refused(
    part: str, has_directory: bool, tmp_path: Path
) -> None:
    """A second run would start from the weights of the first."""
    model = linear()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    build = (lambda: model) if part == "module" else (lambda: nn.Sequential(model))
    options = {"out": tmp_path / "run"} if has_directory else {}
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            train(make_task(build), **options)
        assert caught.value.what == "model" and "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_function_may_share_frozen_layers(tmp_path: Path) -> None:
    frozen = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
    task = make_task(lambda: nn.Sequential(frozen, linear()))
    assert train(task).x_sha256 == train(task).x_sha256


def test_seed_initialises_a_built_model_and_the_global_generator_is_unchanged() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, again, other = (train(make_task(linear), seed=seed).x_sha256 for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert first == again != other


def test_keyword_arguments_of_a_model_class_are_not_configuration_keys() -> None:
    class Net(nn.Sequential):
        def __init__(self, *, width: int = 5, activation: type[nn.Module] = nn.Tanh) -> None:
            super().__init__(nn.Linear(FEATURES, width), activation(), nn.Linear(width, CLASSES))

    assert train(make_task(Net)).params == 4 * 5 + 5 + 5 * 3 + 3
    assert train(make_task(partial(Net, width=2))).params == 4 * 2 + 2 + 2 * 3 + 3
    assert_refused(
        lambda: train(make_task(Net), config={"model.width": 2}), ConfigError, keys=("model.width",)
    )


def per_example(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of each example": per_example,
    "partial": partial(F.cross_entropy, reduction="none"),
    "module": nn.CrossEntropyLoss(),
    "module of each example": nn.CrossEntropyLoss(reduction="none"),
    "lambda": lambda outputs, targets: -outputs.log_softmax(1).gather(1, targets[:, None]).mean(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_may_return_the_mean_or_one_value_per_example(loss: str) -> None:
    expected, found = train(make_task()), train(make_task(loss=LOSSES[loss]))
    torch.testing.assert_close(found.x, expected.x)
    assert found.train_loss == pytest.approx(expected.train_loss, rel=1e-5)


def test_clients_as_mapping_and_as_function_give_the_same_result() -> None:
    mapping, function = make_task(), make_task(clients=examples, client_ids=IDS)
    assert train(mapping).x_sha256 == train(function).x_sha256


def test_client_function_is_called_only_for_sampled_clients() -> None:
    requested: list[str] = []

    def read(name: str) -> tuple[np.ndarray, np.ndarray]:
        requested.append(name)
        return examples(name)

    train(make_task(clients=read, client_ids=[f"client{n}" for n in range(1000)]), rounds=2)
    assert len(requested) == 2 * 3


def test_clients_may_be_tensors_and_lists() -> None:
    tensors = {name: tuple(torch.from_numpy(a) for a in arrays) for name, arrays in CLIENTS.items()}
    assert train(make_task(clients=tensors)).x_sha256 == train(make_task()).x_sha256


class Rows(torch.utils.data.Dataset):
    """The examples of a client as a map-style dataset."""

    def __init__(self, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        self.points, self.labels = arrays

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.points[index], int(self.labels[index])


@pytest.mark.parametrize(
    "form",
    [tuple, list, lambda pair: {"points": pair[0], "labels": pair[1]}, Rows],
    ids=["tuple", "list", "dict", "dataset"],
)
def test_list_of_clients_is_numbered(form: Callable[[Any], Any]) -> None:
    twelve = [examples(f"client{number}") for number in range(12)]
    numbered = {f"{number:02}": pair for number, pair in enumerate(twelve)}
    test = form(TEST)
    model = nn.Linear(FEATURES, CLASSES)
    found = train(make_task(model, clients=[form(pair) for pair in twelve], test=test))
    assert found.x_sha256 == train(make_task(model, clients=numbered)).x_sha256


def test_data_loader_is_refused_with_its_dataset_as_the_alternative() -> None:
    loader = torch.utils.data.DataLoader(Rows(TEST))
    assert_refused(lambda: make_task(clients=[loader, loader]), DataError, client="0")
    assert_refused(lambda: make_task(clients={"a": loader}), DataError, client="a")


NOT_FUNCTIONS: dict[str, dict[str, Any]] = {
    "the name of a loss": {"loss": "cross_entropy"},
    "the class of a loss": {"loss": nn.CrossEntropyLoss},
    "no loss": {"loss": None},
    "the weights of a model": {"model": linear().state_dict()},
    "the name of a metric": {"metrics": "accuracy"},
    "a list of metrics": {"metrics": [accuracy]},
    "a metric by name": {"metrics": {"accuracy": "accuracy"}},
}


@pytest.mark.parametrize("case", NOT_FUNCTIONS)
def test_part_of_a_task_that_is_no_function_is_refused(case: str) -> None:
    (part,) = NOT_FUNCTIONS[case]
    assert_refused(lambda: make_task(**NOT_FUNCTIONS[case]), ModelError, what=part)


def test_task_and_clients_are_shown_without_their_data() -> None:
    points, labels = TEST
    clients = fedopt.federate((points, labels), fedopt.partition.iid(len(labels), clients=3, seed=0))
    assert repr(clients["0"]) == "ClientRows(20 examples)"
    assert repr(make_task(clients=clients)) == (
        "Task('own', user-defined, 3 clients, 60 examples, metric accuracy)"
    )
    assert "ClientRows" not in repr(make_task(clients=clients).federation())


def test_own_metric_and_test_set_by_client() -> None:
    """The metric is the mean of the second class's probability, over the examples of both clients."""

    def second(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.softmax(1)[:, 1], torch.ones(len(targets))

    model = linear()
    task = make_task(model, test={"a": examples("a", 10), "b": examples("b", 30)}, metrics={"second": second})
    result = train(task)
    with torch.no_grad():
        points = np.concatenate([examples("a", 10)[0], examples("b", 30)[0]])
        by_hand = model(torch.from_numpy(points)).softmax(1)[:, 1].mean().item()
    assert result.metric == "second"
    assert result.test[0]["second"] == pytest.approx(by_hand, rel=1e-5)


INVALID: dict[str, tuple[dict[str, Any], str | None]] = {  # changes to the task, and the client in the error
    "no clients": ({"clients": {}}, None),
    "an empty client": ({"clients": {**CLIENTS, "late": examples("late", 0)}}, "late"),
    "a client without arrays": ({"clients": {**CLIENTS, "late": ()}}, "late"),
    "arrays of different lengths": ({"clients": {"odd": (TEST[0][:4], TEST[1][:3])}}, "odd"),
    "a function without ids": ({"clients": examples}, None),
    "a function with no ids": ({"clients": examples, "client_ids": []}, None),
    "a function with equal ids": ({"clients": examples, "client_ids": [1, "1"]}, None),
    "an empty test set": ({"test": examples("test", 0)}, "test"),
    "inputs without targets": ({"clients": {"a": TEST[0], "b": TEST[0]}}, "a"),
    "three arrays": ({"clients": {"a": (*TEST, TEST[1])}}, "a"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_federation_is_refused_before_the_first_round(case: str) -> None:
    changes, client = INVALID[case]
    assert_refused(
        lambda: train(make_task(**changes), config={"clients_per_round": 1}), DataError, client=client
    )


def test_empty_client_of_a_function_is_named_in_the_error() -> None:
    task = make_task(clients=lambda name: examples(name, 0 if name == "client3" else 5), client_ids=IDS)
    assert_refused(lambda: train(task, config={"clients_per_round": 6}), DataError, client="client3")


def test_inputs_of_double_precision_are_accepted() -> None:
    """NumPy's numbers are float64 unless one says otherwise, and fedopt trains float32."""
    doubles = {name: (points.astype(np.float64), labels) for name, (points, labels) in CLIENTS.items()}
    task = make_task(clients=doubles, test=(TEST[0].astype(np.float64), TEST[1]))
    assert train(task).x_sha256 == train(make_task()).x_sha256


def test_own_table_is_imported_and_trained_on(tmp_path: Path) -> None:
    rows = ["hospital,age,dose,sick"]
    rng = np.random.default_rng(0)
    for hospital in ("north", "south", "west"):
        for _ in range(20):
            age, dose = rng.normal(size=2)
            rows.append(f"{hospital},{age:.4f},{dose:.4f},{int(age > dose)}")
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    columns = table_columns("own", "hospital", "sick", None, None, 0.2, 0)
    import_dataset("own", [tmp_path / "table.csv"], tmp_path / "store", ImportOptions(columns=columns))
    task = fedopt.own_task(lambda: torch.nn.Linear(2, 2), F.cross_entropy, str(tmp_path / "store"))
    result = fedopt.run(task, rounds=20, config={"client.lr": 0.5})
    assert result.test[-1]["accuracy"] > 0.8 and result.data == str(tmp_path / "store")


def test_regression_reports_the_loss() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3)).astype(np.float32)
    targets = (points @ np.array([1.0, -2.0, 0.5], dtype=np.float32))[:, None]
    task = fedopt.own_task(lambda: nn.Linear(3, 1), F.mse_loss, {"a": (points, targets)}, (points, targets))
    result = fedopt.run(task, rounds=5, config={"clients_per_round": 1})
    assert result.metric == "loss" and "accuracy" not in result.test[-1]
    with torch.no_grad():
        expected = F.mse_loss(result.model(torch.from_numpy(points)), torch.from_numpy(targets))
    assert result.test[-1]["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_real_metrics_of_a_regression_are_kept() -> None:
    def absolute_error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        errors = (outputs - targets).abs().flatten()
        return errors, torch.ones_like(errors)

    points = np.ones((4, 3), np.float32)
    task = fedopt.own_task(
        lambda: nn.Linear(3, 1),
        F.mse_loss,
        {"a": (points, points[:, :1])},
        (points, points[:, :1]),
        metrics={"absolute_error": absolute_error},
        better="lower",
    )
    assert (task.metric, task.better) == ("absolute_error", "lower")


def test_metric_with_the_name_of_another_recorded_value_is_refused() -> None:
    """It would replace that value in metrics.jsonl, or make the run unreadable."""
    result = train(make_task())
    recorded = {key for line in (*result.train, *result.test) for key in line} - {"accuracy"}
    assert {"loss", "seconds", "round", "split"} < recorded
    for name in recorded | {"rejected_clients"}:  # the latter is recorded only after rejections
        assert_refused(lambda name=name: make_task(metrics={name: accuracy}), ModelError, what="metrics")  # type: ignore[misc]
    assert train(make_task(metrics={"my_loss": accuracy})).metric == "my_loss"


def test_better_must_be_higher_or_lower() -> None:
    assert_refused(lambda: make_task(better="max"), UnknownName, name="max")


def half_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs.reshape(-1), (targets > 0).float())


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Linear(FEATURES, 1),
        lambda: nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(0)),
        lambda: nn.Sequential(nn.Linear(FEATURES, 1), nn.Sigmoid()),
    ],
    ids=["one column", "no column", "probability"],
)
def test_model_without_class_scores_reports_the_loss(model: Callable[[], nn.Module]) -> None:
    """The largest of one output is always class 0, so accuracy would be the share of that class."""
    result = train(make_task(model, loss=half_of))
    assert result.metric == "loss"
    assert_refused(
        lambda: train(make_task(model, loss=half_of, metrics={"accuracy": accuracy})),
        ModelError,
        what="metrics",
    )


def test_integer_inputs_of_a_float_model_are_explained() -> None:
    points, labels = TEST
    task = make_task(clients={"a": (points.astype(np.uint8), labels)}, test=(points.astype(np.uint8), labels))
    with pytest.raises(WorkerError, match="convert them to float32"):
        train(task, config={"clients_per_round": 1})
