"""User-defined tasks: your own model, loss, clients and metrics."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.data import Arrays, Federation, LabelReader, Split, from_function
from fedopt.data.client_data import (
    ExampleFormat,
    is_client_list,
    is_dataset,
    is_loader,
    number_clients,
    open_clients,
)
from fedopt.data.store import StoredSplit, open_store
from fedopt.data.structure import Structure
from fedopt.errors import DataError, ModelError, unknown
from fedopt.formatting import shorten
from fedopt.models.flat import check_copyable
from fedopt.tasks.base import BETTER, Task
from fedopt.tasks.batch import Batch, call_model, map_tensors
from fedopt.tasks.metrics import accuracy, has_class_scores
from fedopt.tasks.task_data import stored_labels

# Client id -> examples, a list of them, a function from an id to examples, or an imported directory.
Clients = Mapping[str, Any] | Sequence[Any] | Callable[[str], Any] | str | os.PathLike[str]
PAIR = Structure("tuple", (), (Structure(), Structure()))


def own_task(
    model: nn.Module | Callable[[], nn.Module],
    loss: Callable[[Any, Any], Tensor],
    clients: Clients,
    test: Any = None,
    client_ids: Sequence[str] | None = None,
    metrics: Mapping[str, Callable[[Any, Any], tuple[Tensor, Tensor]]] | None = None,
    better: str = "higher",
    name: str = "own",
    *,
    target: str | Sequence[str] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> Task:
    """Define a task.

    The examples of a client have one of these forms. All clients and the test set have the same structure.

    - A pair (inputs, targets). Inputs and targets are arrays or tensors with a row per example, or any
      nesting of tuples and dicts of them.
    - A dict of arrays. The entry "labels", "label", "targets" or "target" holds the targets (or the entry
      that `target` names), and the other entries are the inputs.
    - A map-style `torch.utils.data.Dataset` whose items are such pairs or dicts for one example. An item
      must depend on its index only; the global random generators are seeded for each client.
    - A Hugging Face `datasets.Dataset` with numeric columns. It is read like a dict.
    - A client of `fedopt.federate`, which partitions one dataset of any of these forms.

    The model is called as model(x) for an array, model(*inputs) for a tuple and model(**inputs) for a dict;
    a single input of a dict is passed by position if the model has no argument of its name. The loss is
    called with outputs and targets, in the same nesting. Integer targets become int64, and floating-point
    numbers become float32. Integer inputs stay integers; convert images to floating-point numbers.

    Args:
        model: a module, or a function that builds one; with a function, the seed decides the initial weights.
        loss: a function of outputs and targets, such as `torch.nn.functional.cross_entropy`.
        clients: a mapping from client ids to examples, a list with the examples of each client, a function
            from an id to examples, or a directory that `fedopt data import own` has written, which includes
            a test set.
        test: examples, or a mapping from client ids to examples.
        client_ids: the ids, if `clients` is a function.
        metrics: functions of outputs and targets that return the numerator and the denominator of each
            example, as `fedopt.tasks.metrics.accuracy` does. The first metric is reported. Default: accuracy
            if the targets are one integer per example and the model has an output for each of at least two
            classes; otherwise only the loss. Accuracy counts targets that the loss ignores as wrong.
        better: whether a "higher" or a "lower" metric is better; a lower loss always is.
        name: the name in the configuration and in reports.
        target: the entry of a dict that holds the targets. With several names, targets are a dict.
        collate_fn: converts a list of items of a dataset to nested tensors; torch's default otherwise.

    Returns:
        A task for `fedopt.run`, `fedopt.compare` and `fedopt.sweep`.

    Examples:
        >>> def network():
        ...     return nn.Linear(2, 2)
        >>> clients = {"a": (np.eye(2), [0, 1]), "b": (np.ones((3, 2)), [0, 1, 1])}
        >>> task = fedopt.own_task(network, nn.functional.cross_entropy, clients, test=(np.eye(2), [0, 1]))
        >>> result = fedopt.run(task, rounds=3)
        >>> result.metric, result.model
        ('accuracy', Linear(in_features=2, out_features=2, bias=True))
    """
    if better not in BETTER:
        raise unknown("value of better", better, BETTER)
    _check_functions(model, loss, metrics)
    format = ExampleFormat(target if target is None or isinstance(target, str) else tuple(target), collate_fn)
    federation, structure, first = _open_federation(clients, test, client_ids, format)
    if isinstance(model, nn.Module):
        check_copyable(model)
    build = partial(copy.deepcopy, model) if isinstance(model, nn.Module) else partial(_call, model)
    if metrics is None:
        metrics = {"accuracy": accuracy} if _is_classification(build, structure, first) else {}
    return Task(
        name=name,
        what=f"user-defined, {federation.train.describe()}",
        federation=partial(_constant, federation),
        model=build,
        prepare=partial(_prepare, structure),
        loss=partial(_call, loss),
        metrics=metrics,
        better=better if metrics else "lower",
        clients_per_round=min(10, len(federation.train.ids)),
    )


def _check_functions(model: Any, loss: Any, metrics: Any) -> None:
    """Refuse objects that cannot be called, before the data is read."""
    if not callable(model):
        raise ModelError(
            f"model is of type {type(model).__name__}; pass a torch.nn.Module, or a function that builds one",
            what="model",
        )
    if isinstance(loss, type):
        raise ModelError(f"loss is the class {loss.__name__}; pass an object: {loss.__name__}()", what="loss")
    if not callable(loss):
        raise ModelError(
            f"loss is {_describe(loss)}; pass a function of outputs and targets, such as "
            "torch.nn.functional.cross_entropy",
            what="loss",
        )
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ModelError(
            f"metrics is {_describe(metrics)}; pass a mapping from names to functions, such as "
            "{'accuracy': fedopt.tasks.metrics.accuracy}",
            what="metrics",
        )
    for name, metric in (metrics or {}).items():
        if not callable(metric) or isinstance(metric, type):
            raise ModelError(
                f"the metric {name!r} is {_describe(metric)}; pass a function of outputs and targets, such "
                "as fedopt.tasks.metrics.accuracy",
                what="metrics",
            )


def _describe(value: Any) -> str:
    """Return "the text 'mse'", "the class MSELoss" or "of type list"."""
    if isinstance(value, str):
        return f"the text {shorten(value)!r}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _open_federation(
    clients: Clients, test: Any, ids: Sequence[str] | None, format: ExampleFormat
) -> tuple[Federation, Structure, Arrays]:
    """Return the data, the structure of its examples and some test examples."""
    if isinstance(clients, str | os.PathLike):
        store = open_store(clients)
        names = tuple(store.manifest["notes"].get("labels", {}))  # of text labels
        train, stored_test = (_stored_split(store.split(name), names) for name in ("train", "test"))
        return Federation(train, stored_test, str(clients)), PAIR, stored_test.client(0)
    if test is None:
        raise DataError("a test set is needed: pass test=(inputs, targets)")
    tests = {"test": test} if format.is_examples(test) or is_loader(test) else test
    tests = _check_mapping("test", tests)
    name = next(iter(tests))
    first, structure = format.first_examples(tests[name], str(name))
    if callable(clients) and not is_dataset(clients):
        if ids is None:
            raise DataError("clients is a function, so the ids are needed too: pass client_ids=[...]")
        train = from_function(partial(_read_client, clients, format, structure), ids)
    elif is_client_list(clients):
        train = open_clients(number_clients(clients), format, structure)
    elif format.is_examples(clients):
        raise DataError(
            "clients is one dataset; divide it among clients: "
            "clients=fedopt.federate(dataset, fedopt.partition.iid(labels, clients=10, seed=0))"
        )
    else:
        train = open_clients(_check_mapping("clients", clients), format, structure)
    return Federation(train, open_clients(tests, format, structure), "own"), structure, first


def _is_classification(build: Callable[[], nn.Module], structure: Structure, examples: Arrays) -> bool:
    """Whether the targets are an integer per example, and the model has a score for each class.

    A model that cannot be evaluated is reported by the first evaluation.
    """
    _, labels = structure.unflatten(examples)
    if not (isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "biu"):
        return False
    first = tuple(torch.tensor(array[:2]) for array in examples)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            inputs, targets = _prepare(structure, first, None)
            return has_class_scores(call_model(build().eval(), inputs), targets)
    except Exception:
        return True


def _check_mapping(argument: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise DataError(
            f"{argument} is of type {type(value).__name__}; pass a mapping of client ids to examples"
        )
    if not value:
        raise DataError(f"{argument} is empty; pass at least one id with its examples")
    return value


def _stored_split(split: StoredSplit, names: Sequence[str]) -> Split:
    read = stored_labels(split)
    labels = None if read is None else LabelReader(read, names=names)
    return Split(split.ids, split.sizes, partial(_stored_pair, split), labels=labels)


def _stored_pair(split: StoredSplit, client: int) -> Arrays:
    columns = split.columns(client)
    return np.asarray(columns["features"]), np.asarray(columns["label"])


def _read_client(
    read: Callable[[str], Any], format: ExampleFormat, structure: Structure, client: str
) -> Arrays:
    return format.read(read(client), client, structure)[0]


def _prepare(structure: Structure, examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> Batch:
    inputs, targets = structure.unflatten(examples)
    return map_tensors(_input_type, inputs), map_tensors(_target_type, targets)


def _input_type(part: Tensor) -> Tensor:
    if part.is_floating_point():
        return part.float()
    return part.long() if part.dtype in (torch.uint16, torch.uint32, torch.uint64) else part


def _target_type(part: Tensor) -> Tensor:
    return part.float() if part.is_floating_point() else part.long()


def _constant(value: Any, *ignored: Any) -> Any:
    return value


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function. This hides its keyword arguments, which are not configuration keys."""
    return function(*arguments)
