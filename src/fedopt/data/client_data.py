"""The data of a client in every accepted form: arrays, a map-style dataset, a Hugging Face dataset, or some
rows of one of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedopt import rng
from fedopt.data.federation import Arrays, LabelReader, Split, last_array
from fedopt.data.structure import Structure, flatten
from fedopt.errors import DataError
from fedopt.formatting import count_noun

TARGET_NAMES = ("labels", "label", "targets", "target")
EXPECTED = f"a pair (inputs, targets), or a dict or dataset whose targets are named {', '.join(TARGET_NAMES)}"


@dataclass(frozen=True, eq=False, repr=False)
class ClientRows:
    """The rows of a dataset that belong to one client. They are read when the client is."""

    dataset: Any
    rows: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"ClientRows({count_noun(len(self.rows), 'example')})"  # without the data


@dataclass(frozen=True)
class ExampleFormat:
    """How examples are read: the names of the targets in a dict, and how a dataset's items are batched.

    `target` is the name of one entry, or several names; None selects the entry with a name of TARGET_NAMES.
    `collate` converts a list of items to nested tensors; None selects torch's default.
    """

    target: str | tuple[str, ...] | None = None
    collate: Callable[[list[Any]], Any] | None = None

    def read(self, data: Any, client: str, expected: Structure | None = None) -> tuple[Arrays, Structure]:
        """Return all examples of a client as flat arrays, and the structure of the pair (inputs, targets)."""
        try:
            inputs, targets = self._pair(self._all_rows(data, client))
            arrays, structure = _flatten_pair(inputs, targets)
        except DataError as error:
            message = f"client {client!r}: {error}"
            raise DataError(message, client=client, column=error.column) from error.__cause__
        if expected is not None and structure != expected:
            message = (
                f"client {client!r} has the structure {structure}; expected {expected}, as in the test set"
            )
            raise DataError(message, client=client)
        return arrays, structure

    def first_examples(self, data: Any, client: str) -> tuple[Arrays, Structure]:
        """Return some examples and their structure. Of a dataset, only the first item is read."""
        if is_dataset(data):
            data = ClientRows(data, np.arange(min(1, len(data))))
        elif isinstance(data, ClientRows):
            data = replace(data, rows=data.rows[:1])
        return self.read(data, client)

    def is_examples(self, data: Any) -> bool:
        """Whether `data` is one set of examples and not a mapping of clients."""
        if isinstance(data, Mapping):
            names = TARGET_NAMES if self.target is None else _names(self.target)
            return any(name in data for name in names) and not any(map(_has_targets, data.values()))
        return is_dataset(data) or isinstance(data, Sequence | ClientRows) or hasattr(data, "__array__")

    def label_names(self, data: Any) -> tuple[str, ...]:
        """Return the text of each label, which a Hugging Face dataset may have."""
        dataset = data.dataset if isinstance(data, ClientRows) else data
        if not _is_hugging_face(dataset) or isinstance(self.target, tuple):
            return ()
        candidates = TARGET_NAMES if self.target is None else (self.target,)
        features = [dataset.features[name] for name in candidates if name in dataset.features]
        return tuple(getattr(features[0], "names", ())) if len(features) == 1 else ()

    def _all_rows(self, data: Any, client: str) -> Any:
        if is_dataset(data):
            data = ClientRows(data, np.arange(len(data)))
        if not isinstance(data, ClientRows):
            return data
        if is_dataset(data.dataset):
            with _fixed_randomness(client):
                return self._dataset_rows(data.dataset, data.rows)
        arrays, structure = flatten(data.dataset)
        return structure.unflatten([array[data.rows] for array in arrays])

    def _dataset_rows(self, dataset: Any, rows: NDArray[np.int64]) -> Any:
        if len(rows) == 0:
            raise DataError("has no examples; remove the client")
        if _is_hugging_face(dataset) and self.collate is None and dataset.format["type"] != "custom":
            return dataset.with_format("numpy")[rows.tolist()]
        from torch.utils.data import default_collate

        collate = self.collate or default_collate
        try:
            return _as_tuples(collate([dataset[row] for row in rows.tolist()]))
        except Exception as error:  # in the user's dataset or collate_fn
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            hint = "" if self.collate else "; collate_fn can replace torch's default_collate"
            raise DataError(f"its items cannot be read and batched ({why}){hint}") from error

    def _pair(self, data: Any) -> tuple[Any, Any]:
        if isinstance(data, Mapping):
            return self._split_dict(data)
        if self.target is not None:
            raise DataError(f"target is {self.target!r}, but the examples are not a dict")
        if isinstance(data, tuple | list) and len(data) == 2:
            return data[0], data[1]
        if is_loader(data):
            raise DataError("the examples are a DataLoader; pass its dataset: loader.dataset")
        found = (
            f"have {len(data)} parts" if isinstance(data, tuple | list) else f"are a {type(data).__name__}"
        )
        raise DataError(f"the examples {found}; expected {EXPECTED}")

    def _split_dict(self, data: Mapping[Any, Any]) -> tuple[Any, Any]:
        entries = {str(key): value for key, value in data.items()}
        names = _names(self.target) if self.target else [name for name in TARGET_NAMES if name in entries]
        missing = [name for name in names if name not in entries]
        if missing:
            raise DataError(f"has no entry {missing[0]!r}; target names one of: {', '.join(entries)}")
        if len(names) != 1 and not isinstance(self.target, tuple):
            problem = f"has the entries {' and '.join(names)}" if names else f"has only {', '.join(entries)}"
            raise DataError(f"{problem}; name the entry with the targets: target='...'")
        targets = {name: entries.pop(name) for name in names}
        if not entries:
            raise DataError(f"has no inputs besides {', '.join(names)}")
        return entries, targets if isinstance(self.target, tuple) else targets[names[0]]


@dataclass(frozen=True, eq=False)
class _Clients:
    """Returns the flat arrays of a client by position. Datasets are read when the client is."""

    ids: Sequence[str]
    data: Sequence[Any]  # flat arrays, a dataset or ClientRows
    format: ExampleFormat
    structure: Structure

    def __call__(self, index: int) -> Arrays:
        data = self.data[index]
        return data if isinstance(data, tuple) else self.format.read(data, self.ids[index], self.structure)[0]


def open_clients(clients: Mapping[Any, Any], format: ExampleFormat, structure: Structure) -> Split:
    """Build a split from a mapping of client ids to examples of any form.

    Arrays are checked now, datasets when they are read.
    """
    by_id = {str(name): data for name, data in clients.items()}
    if len(by_id) < len(clients):
        texts = [str(name) for name in clients]
        repeated = next(text for text in texts if texts.count(text) > 1)
        raise DataError(f"two client ids are {repeated!r} as text; make the ids unique", client=repeated)
    ids = sorted(by_id)
    data = [by_id[name] for name in ids]
    is_lazy = [isinstance(by_id[name], ClientRows) or is_dataset(by_id[name], name) for name in ids]
    for index, name in enumerate(ids):
        if not is_lazy[index]:
            data[index] = format.read(data[index], name, structure)[0]
    sizes = [count_examples(d) if lazy else len(d[0]) for d, lazy in zip(data, is_lazy, strict=True)]
    examples = _Clients(ids, data, format, structure)
    reads_datasets = any(is_dataset(d.dataset if isinstance(d, ClientRows) else d) for d in data)
    names = format.label_names(data[0])
    labels = LabelReader(partial(last_array, examples), is_cheap=not reads_datasets, names=names)
    is_single_target = structure.children[1].kind == "array"
    split = Split(ids, np.array(sizes, dtype=np.int64), examples, labels=labels if is_single_target else None)
    for index, (size, lazy) in enumerate(zip(sizes, is_lazy, strict=True)):
        if size == 0 or not lazy:
            split.client(index)
    return split


def is_client_list(data: Any) -> TypeGuard[list[Any]]:
    """Whether `data` is a list of clients. The list [inputs, targets] is one set of examples instead."""
    return isinstance(data, list) and bool(data) and all(map(_is_client, data))


def _is_client(data: Any) -> bool:
    """Whether an element of a list is the examples of a client. A plain list may be rows of an array."""
    if isinstance(data, list):
        return len(data) == 2 and all(hasattr(part, "__array__") for part in data)
    return isinstance(data, tuple | Mapping | ClientRows) or is_loader(data) or is_dataset(data)


def is_loader(data: Any) -> bool:
    """Whether `data` is a DataLoader, which is refused with a hint when it is read."""
    return _has_class(data, "DataLoader")


def number_clients(clients: Sequence[Any]) -> dict[str, Any]:
    """Return the clients by number. The ids have equal lengths, so their order is that of the list."""
    width = len(str(len(clients) - 1))
    return {f"{number:0{width}}": client for number, client in enumerate(clients)}


def is_dataset(data: Any, client: str | None = None) -> bool:
    """Whether `data` is a map-style dataset: it has a length and items by position."""
    is_container = isinstance(data, Mapping | Sequence) or hasattr(data, "__array__")
    if is_container or not hasattr(data, "__getitem__"):
        return False
    if not hasattr(data, "__len__") or _has_class(data, "IterableDataset"):
        where = "" if client is None else f"client {client!r}: "
        problem = f"{type(data).__name__} is not a map-style dataset with __getitem__ and __len__"
        raise DataError(f"{where}{problem}", client=client)
    return True


def count_examples(data: Any) -> int:
    """Return the number of examples of a dataset, or of nested arrays, which must have equal lengths."""
    if isinstance(data, ClientRows):
        return len(data.rows)
    if is_dataset(data):
        return len(data)
    lengths = {len(array) for array in flatten(tuple(data) if isinstance(data, list) else data)[0]}
    if len(lengths) != 1:
        raise DataError(f"the dataset has arrays of different lengths: {sorted(lengths)}")
    return lengths.pop()


def _flatten_pair(inputs: Any, targets: Any) -> tuple[Arrays, Structure]:
    first, inputs_structure = flatten(inputs, "inputs")
    second, targets_structure = flatten(targets, "targets")
    if not first or not second:
        raise DataError(f"has no arrays; expected {EXPECTED}")
    return first + second, Structure("tuple", (), (inputs_structure, targets_structure))


def _names(target: str | tuple[str, ...]) -> Sequence[str]:
    return (target,) if isinstance(target, str) else target


def _has_targets(value: Any) -> bool:
    """Whether a value of a mapping is the data of a client rather than an array."""
    is_dict = isinstance(value, Mapping) and any(name in value for name in TARGET_NAMES)
    return is_dict or isinstance(value, ClientRows) or is_dataset(value)


def _is_hugging_face(data: Any) -> bool:
    return _has_class(data, "Dataset", "datasets.")


def _has_class(data: Any, name: str, module: str = "") -> bool:
    return any(c.__name__ == name and c.__module__.startswith(module) for c in type(data).__mro__)


def _as_tuples(tree: Any) -> Any:
    """Convert lists of tensors, which collating returns for tuples, to tuples."""
    if isinstance(tree, Mapping):
        return {key: _as_tuples(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not all(isinstance(value, int | float | str) for value in tree):
        return tuple(map(_as_tuples, tree))
    return tree


@contextmanager
def _fixed_randomness(client: str) -> Iterator[None]:
    """Seed the global generators that transforms use: reading a client twice gives the same examples."""
    import torch

    seed = rng.torch_seed("dataset", client)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002
