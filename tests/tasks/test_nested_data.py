"""Client data of any structure: nested arrays, map-style datasets, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nested_clients import CLASSES, IDS, WORDS, Items, MeanEmbedding, first_tokens, tokens
from own_clients import assert_refused
from torch import Tensor, nn
from torch.utils.data import IterableDataset

import fedopt
from fedopt.errors import DataError, ExecutorWarning, ModelError, WorkerError

CONFIG = {"clients_per_round": 3, "client.batch_size": 8, "client.lr": 0.5, "eval.every": 1}
Arrays = dict[str, np.ndarray]


def pair(arrays: Arrays) -> Any:
    return (arrays["input_ids"], arrays["attention_mask"]), arrays["labels"]


def dict_pair(arrays: Arrays) -> Any:
    return {name: arrays[name] for name in ("attention_mask", "input_ids")}, arrays["labels"]


def tensors(arrays: Arrays) -> Any:
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def hugging_face(arrays: Arrays) -> Any:
    return datasets.Dataset.from_dict({name: values.tolist() for name, values in arrays.items()})


def items(arrays: Arrays) -> Any:
    return Items(arrays)


def item_pairs(arrays: Arrays) -> Any:
    return Items(arrays, "pair")


def rows(arrays: Arrays) -> Any:
    """A Hugging Face dataset with a transform, which is applied to every row."""
    return hugging_face(arrays).with_transform(
        lambda batch: {k: list(map(torch.tensor, v)) for k, v in batch.items()}
    )


FORMS: dict[str, Callable[[Arrays], Any]] = {
    form.__name__: form for form in (dict, pair, dict_pair, tensors, hugging_face, items, item_pairs, rows)
}


def make_task(form: Callable[[Arrays], Any] = dict, **changes: Any) -> Any:
    clients = {name: form(tokens(name)) for name in IDS}
    arguments = {
        "clients": clients,
        "test": form(tokens("test", 20)),
        "model": MeanEmbedding,
        "loss": F.cross_entropy,
    }
    return fedopt.own_task(**{**arguments, **changes})


def train(task: Any, rounds: int = 2, **options: Any) -> fedopt.RunResult:
    return fedopt.run(task, rounds=rounds, config=CONFIG, **options)


def plain_fedavg(model: nn.Module, rounds: int) -> Tensor:
    """FedAvg in plain PyTorch: one full-batch step of each client, and the mean of equal clients."""
    for _ in range(rounds):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        ends = []
        for name in IDS:
            model.load_state_dict(start)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            data = tensors(tokens(name))
            F.cross_entropy(model(data["input_ids"], data["attention_mask"]), data["labels"]).backward()
            optimizer.step()
            optimizer.zero_grad()
            ends.append({key: value.clone() for key, value in model.state_dict().items()})
        model.load_state_dict({key: sum(end[key] for end in ends) / len(ends) for key in start})
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_result_of_plain_pytorch(form: str) -> None:
    model = MeanEmbedding()
    result = train(make_task(FORMS[form], model=model))
    torch.testing.assert_close(result.x, plain_fedavg(model, rounds=2))
    test = tensors(tokens("test", 20))
    with torch.no_grad():  # the model has the weights of plain PyTorch
        outputs = model(test["input_ids"], test["attention_mask"])
    assert result.test[-1]["loss"] == pytest.approx(F.cross_entropy(outputs, test["labels"]).item(), rel=1e-5)
    hits = (outputs.argmax(1) == test["labels"]).float().mean().item()
    assert result.test[-1]["accuracy"] == pytest.approx(hits)


def test_worker_processes_read_clients_of_all_forms() -> None:
    clients = {name: form(tokens(name)) for name, form in zip(IDS, (dict, items, hugging_face), strict=True)}
    found = train(make_task(clients=clients), executor="processes", workers=2)
    assert found.x_sha256 == train(make_task()).x_sha256


def test_vectorised_executor_trains_nested_data_one_client_at_a_time() -> None:
    with pytest.warns(ExecutorWarning):
        result = train(make_task(), executor="vectorised")
    assert "nested" in result.fallback_reason
    torch.testing.assert_close(result.x, train(make_task()).x)


def test_client_function_returns_nested_data() -> None:
    by_function = make_task(clients=tokens, client_ids=IDS)
    assert train(by_function).x_sha256 == train(make_task()).x_sha256


def test_collate_function_replaces_the_default() -> None:
    cut = {name: Items({k: v[:, :3] if v.ndim == 2 else v for k, v in tokens(name).items()}) for name in IDS}
    test = Items(tokens("test"))
    expected = train(make_task(clients=cut, test=test, collate_fn=first_tokens))
    found = train(make_task(items, test=test, collate_fn=first_tokens))
    from_rows = train(
        make_task(hugging_face, test=test, collate_fn=lambda rows: first_tokens(list(map(tensor_row, rows))))
    )
    assert found.x_sha256 == expected.x_sha256 == from_rows.x_sha256


def tensor_row(row: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value) for name, value in row.items()}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
def test_integer_labels_of_any_width_are_class_labels(dtype: str) -> None:
    def narrow(arrays: Arrays) -> Arrays:
        return {**arrays, "labels": arrays["labels"].astype(dtype)}

    assert train(make_task(narrow)).x_sha256 == train(make_task()).x_sha256


def test_boolean_labels_are_class_labels() -> None:
    def boolean(arrays: Arrays) -> Arrays:
        return {**arrays, "labels": arrays["labels"] > 0}

    def integer(arrays: Arrays) -> Arrays:
        return {**arrays, "labels": (arrays["labels"] > 0).astype(np.int64)}

    assert train(make_task(boolean)).x_sha256 == train(make_task(integer)).x_sha256


def test_single_input_of_a_dict_is_passed_by_position() -> None:
    """The column "pixels" of a dataset is the input of a network whose argument has another name."""

    def make(form: Callable[[Arrays], Any]) -> Any:
        clients = {name: form(pixels(name)) for name in IDS}
        model = nn.Linear(5, CLASSES)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        return fedopt.own_task(model, F.cross_entropy, clients, form(pixels("test")))

    expected = train(make(lambda arrays: (arrays["pixels"], arrays["label"])))
    for form in (dict, hugging_face):
        assert train(make(form)).x_sha256 == expected.x_sha256


def pixels(name: str) -> Arrays:
    arrays = tokens(name)
    return {"pixels": (arrays["input_ids"] / WORDS).astype(np.float32), "label": arrays["labels"]}


def two_losses(outputs: Tensor, targets: dict[str, Any]) -> Tensor:
    first = F.cross_entropy(outputs, targets["labels"], reduction="none")
    return first + F.cross_entropy(outputs, targets["other"], reduction="none")


def hits(outputs: Tensor, targets: dict[str, Any]) -> tuple[Tensor, Tensor]:
    right = (outputs.argmax(1) == targets["labels"]).float()
    return right, torch.ones_like(right)


def test_targets_may_be_nested() -> None:
    """Twice the same label, as a nested target and as two named entries: twice the loss."""

    def nested(arrays: Arrays) -> Any:
        inputs, labels = dict_pair(arrays)
        return inputs, {"labels": labels, "other": labels.astype(np.int16)}

    def named(arrays: Arrays) -> Any:
        return {**arrays, "other": arrays["labels"]}

    task = {"loss": two_losses, "metrics": {"hits": hits}}
    first = train(make_task(nested, **task))
    second = train(make_task(named, target=("labels", "other"), **task))
    assert first.x_sha256 == second.x_sha256
    single = train(make_task())
    assert first.test[0]["loss"] == pytest.approx(2 * single.test[0]["loss"], rel=1e-6)
    assert first.test[0]["hits"] == single.test[0]["accuracy"]


def test_target_names_an_entry() -> None:
    def renamed(arrays: Arrays) -> Arrays:
        return {name.replace("labels", "digit"): values for name, values in arrays.items()}

    assert train(make_task(renamed, target="digit")).x_sha256 == train(make_task()).x_sha256


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        yield from ()


TEXT = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
GOOD = tokens("a")
INVALID: dict[str, tuple[dict[str, Any], str | None]] = {  # changes to the task, and the client in the error
    "another structure": ({"clients": {"a": GOOD, "b": pair(GOOD)}}, "b"),
    "an additional entry": ({"clients": {"a": {**GOOD, "more": GOOD["labels"]}}}, "a"),
    "no target": ({"clients": {"b": {"input_ids": GOOD["input_ids"]}}}, "b"),
    "two targets": ({"clients": {"b": {**GOOD, "label": GOOD["labels"]}}}, "b"),
    "targets only": ({"clients": {"b": {"labels": GOOD["labels"]}}}, "b"),
    "an unknown target": ({"target": "digit"}, None),
    "a target of a pair": ({"test": pair(GOOD), "target": "labels"}, "test"),
    "an entry of another length": ({"clients": {"b": {**GOOD, "labels": GOOD["labels"][:3]}}}, "b"),
    "text": ({"clients": {"b": {**GOOD, "input_ids": ["x"] * 8}}}, "b"),
    "a test set of text": ({"test": TEXT}, "test"),
    "an empty dataset": ({"clients": {"b": Items(tokens("b", 0))}}, "b"),
    "an empty Hugging Face dataset": ({"clients": {"b": hugging_face(GOOD).select([])}}, "b"),
    "a stream": ({"clients": {"b": Stream()}}, "b"),
    "one dataset for all clients": ({"clients": GOOD}, None),
    "one Dataset for all clients": ({"clients": Items(GOOD)}, None),
    "equal ids": ({"clients": {1: GOOD, "1": GOOD}}, None),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_data_is_refused_when_the_task_is_defined(case: str) -> None:
    changes, client = INVALID[case]
    assert_refused(lambda: make_task(**changes), DataError, **({"client": client} if client else {}))


LAZY: dict[str, Any] = {
    "text": TEXT,
    "rows of different lengths": datasets.Dataset.from_dict({"input_ids": [[1], [1, 2]], "labels": [0, 1]}),
    "another structure": Items(tokens("b"), "pair"),
    "a failing item": Items({"labels": GOOD["labels"], "input_ids": GOOD["input_ids"][:2]}),
}


@pytest.mark.parametrize("case", LAZY)
def test_invalid_dataset_is_refused_with_its_client_when_it_is_read(case: str) -> None:
    task = make_task(clients={"a": GOOD, "b": LAZY[case], "c": GOOD})
    assert_refused(lambda: train(task), DataError, client="b")


def test_message_names_column_and_remedy() -> None:
    with pytest.raises(DataError) as error:
        make_task(test=TEXT)
    assert error.value.column == "text"
    assert "remove it or encode it" in str(error.value)


def test_model_without_the_named_arguments_is_refused() -> None:
    with pytest.raises((ModelError, WorkerError)) as error:
        train(make_task(model=lambda: nn.Linear(5, CLASSES)))
    assert "attention_mask" in str(error.value)


class Noisy(Items):
    """Adds noise of torch's global generator to every item, as a random transform does."""

    def __getitem__(self, index: int) -> Any:
        row = super().__getitem__(index)
        return {**row, "attention_mask": torch.rand(5)}


def test_random_transforms_are_reproducible_and_leave_global_generators_unchanged() -> None:
    def noisy(arrays: Arrays) -> Any:
        return Noisy(arrays)

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = train(make_task(noisy)).x_sha256
    assert torch.equal(torch.rand(1), expected)
    assert train(make_task(noisy)).x_sha256 == first
