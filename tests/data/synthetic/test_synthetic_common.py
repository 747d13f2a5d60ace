"""Properties of all synthetic datasets: the real totals, sorted ids, equality across processes, errors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fedopt.data.synthetic import cifar, emnist, shakespeare, stackoverflow
from fedopt.errors import ConfigError, DataError, UnknownName

MODULES = [cifar, emnist, shakespeare, stackoverflow]
EACH = pytest.mark.parametrize("module", MODULES, ids=[module.__name__.split(".")[-1] for module in MODULES])


def digest(columns: dict[str, Any]) -> str:
    parts = []
    for name in sorted(columns):
        column = columns[name]
        parts += [column.tobytes()] if isinstance(column, np.ndarray) else [a.tobytes() for a in column]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def digest_in_new_process(module: str, arguments: tuple[Any, ...]) -> str:
    program = (
        "import hashlib, importlib, numpy as np; "
        f"e = importlib.import_module({module!r}).examples(*{arguments!r}); "
        "columns = [[e[k]] if isinstance(e[k], np.ndarray) else e[k] for k in sorted(e)]; "
        "parts = [a.tobytes() for column in columns for a in column]; "
        "print(hashlib.sha256(b''.join(parts)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4321"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("module", "split", "clients", "total"),
    [
        (cifar, "train", 500, 50_000),
        (cifar, "test", 100, 10_000),
        (emnist, "train", 3400, 671_585),
        (emnist, "test", 3400, 77_483),
        (shakespeare, "train", 715, 16_068),
        (shakespeare, "test", 715, 2_356),
        (stackoverflow, "train", 342_477, 135_818_730),
        (stackoverflow, "test", 204_088, 16_586_035),
    ],
)
def test_sizes_have_the_totals_of_the_papers_table(module, split: str, clients: int, total: int) -> None:
    counts = module.sizes(split)
    assert counts.dtype == np.int64 and counts.shape == (clients,)
    assert counts.sum() == total
    assert counts.min() >= 1
    assert module.CLIENTS[split] == clients and module.EXAMPLES[split] == total


@pytest.mark.parametrize("module", [emnist, shakespeare, stackoverflow])
def test_cached_sizes_are_read_only(module) -> None:
    with pytest.raises(ValueError, match="read-only"):
        module.sizes("train")[0] = 0


@EACH
@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_are_sorted_and_different(module, split: str) -> None:
    names = module.ids(split)
    listed = list(names)
    assert len(names) == len(set(listed)) == module.CLIENTS[split]
    assert listed == sorted(listed)
    assert names[0] == listed[0] and names[-1] == listed[-1] and names[7:9] == listed[7:9]
    with pytest.raises(IndexError):
        names[len(listed)]


@pytest.mark.parametrize(
    ("module", "client", "options"),
    [
        (cifar, 42, (10,)),
        (cifar, 42, (100,)),
        (emnist, 2718, ()),
        (shakespeare, 271, ()),
        (stackoverflow, 200_000, ()),
    ],
)
def test_client_is_the_same_in_every_process(module, client: int, options: tuple[int, ...]) -> None:
    for split in ("train", "test"):
        here = digest(module.examples(split, client, *options))
        assert here == digest(module.examples(split, np.int64(client), *options))
        assert here != digest(module.examples(split, client - 1, *options))
    assert here == digest_in_new_process(module.__name__, ("test", client, *options))
    assert here != digest(module.examples("train", client, *options))


@EACH
@pytest.mark.parametrize("function", ["sizes", "ids", "examples"])
def test_unknown_split_is_rejected(module, function: str) -> None:
    arguments = ("tset", 0) if function == "examples" else ("tset",)
    with pytest.raises(UnknownName) as caught:
        getattr(module, function)(*arguments)
    error = caught.value
    assert (error.kind, error.name, error.allowed) == ("split", "tset", ("train", "test"))


@EACH
def test_client_that_does_not_exist_is_rejected(module) -> None:
    for client in (-1, module.CLIENTS["test"]):
        with pytest.raises(DataError) as caught:
            module.examples("test", client)
        assert caught.value.client == str(client)


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(DataError):
        cifar.examples("test", 0, 20)
    with pytest.raises(ConfigError) as caught:
        stackoverflow.examples("test", 0, limit=0)
    assert caught.value.keys == ("data.limit",)
