"""Checksums of functions change with everything that the functions use, and with nothing else."""

from __future__ import annotations

import importlib
import linecache
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedopt.algorithms import adam, fedopt, sgd
from fedopt.runs.source_fingerprint import CodeReader

SCALE = 2.0
OPTIONS: dict[str, Any] = {"alpha": 0.1, "names": {"a", "b"}}
CALLS: list[float] = []


def checksum(value: Any) -> str:
    return CodeReader().checksum(value)


def helper(x: float) -> float:
    return x + 1


def other_helper(x: float) -> float:
    return x + 2


def user(x: float) -> float:
    return helper(SCALE * x) * OPTIONS["alpha"]


def recorder(x: float) -> float:
    CALLS.append(x)
    return x


def closure(value: Any) -> Any:
    def inner(x: float) -> Any:
        return value, x

    return inner


def with_default(x: float, factor: float = 1.0) -> float:
    return factor * x


class Client:
    def __init__(self, rate: float) -> None:
        self.rate, self.calls = rate, 0

    def __call__(self, x: float) -> float:
        self.calls += 1
        return self.rate * x


@dataclass(slots=True)
class Settings:
    rate: float


def test_equal_functions_have_equal_checksums() -> None:
    for make in (lambda: user, lambda: closure(3), lambda: partial(user, 1), lambda: Client(0.1)):
        assert checksum(make()) == checksum(make())


def test_values_that_a_function_uses_change_its_checksum() -> None:
    pair = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0])), nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))
    checksums = [
        checksum(value)
        for value in (
            closure(3),
            closure(4),
            closure(np.zeros(2)),
            closure(np.ones(2)),
            closure(torch.ones(2)),
            closure(torch.ones(2, dtype=torch.bfloat16)),
            closure(torch.tensor(1)),
            closure(torch.float32),
            closure(torch.float64),
            closure(helper),
            closure(other_helper),
            closure([0.1, 0.9]),
            closure([0.9, 0.1]),
            closure({"alpha": 0.1}),
            closure({"alpha": 0.2}),
            partial(with_default, factor=2.0),
            partial(with_default, factor=3.0),
            partial(with_default, factor=[2.0]),
            Client(0.1),
            Client(0.2),
            Settings(0.1),
            Settings(0.2),
            *pair,
            nn.CrossEntropyLoss(label_smoothing=0.1),
            *(lambda x: x + 1, lambda x: x + 2),
        )
    ]
    assert len(set(checksums)) == len(checksums)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SCALE", 3.0), ("helper", other_helper), ("OPTIONS", {**OPTIONS, "alpha": 0.2})],
)
def test_global_names_count(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checksum(user)
    monkeypatch.setitem(globals(), name, value)
    assert checksum(user) != before
    monkeypatch.undo()
    assert checksum(user) == before


def test_comments_orders_and_records_do_not_count() -> None:
    def plain(x: float) -> float:
        return x + 1

    first = checksum(plain)

    def plain(x: float) -> float:  # the same with a comment
        # and another one
        return x + 1

    assert checksum(plain) == first
    before = checksum(recorder), checksum(client := Client(0.1))
    recorder(1.0), client(1.0)
    assert (checksum(recorder), checksum(client)) == before
    assert checksum(closure({"a": 1, "b": 2})) == checksum(closure({"b": 2, "a": 1}))


def test_lambdas_have_their_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their checksums do not depend on the bytecode, which differs between versions of Python."""
    bodies = ["x if x > 0 else -x", "0", "x and not x", "[x for _ in range(2)]", "(lambda: x)()", "(x\n + 1)"]
    (tmp_path / "lambdas.py").write_text(f"parts = [{', '.join(f'lambda x: {body}' for body in bodies)}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("lambdas")
    before = [checksum(part) for part in module.parts]
    assert len(set(before)) == len(bodies)
    (tmp_path / "lambdas.py").write_text(
        "\n".join(f"def f{n}():\n    return (lambda  x:  {body})  # comment" for n, body in enumerate(bodies))
    )
    monkeypatch.delitem(sys.modules, "lambdas")
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "__pycache__").rename(tmp_path / "old") if (tmp_path / "__pycache__").exists() else None
    module = importlib.import_module("lambdas")
    after = [checksum(vars(module)[f"f{n}"]()) for n in range(len(bodies))]
    assert after == before


MAIN = """
import torch
from torch import nn
import helpers
import package.inner

ALPHA = 0.1

def below(x):
    return helpers.used(x) + package.inner.used(x) * helpers.WEIGHTS[0]

class Base(nn.Module):
    factor = 3.0
    rates = [8.0]

    @staticmethod
    def half(x):
        return x / 2

    @property
    def rate(self):
        return 5.0

class Loss(Base):
    def forward(self, outputs, targets):
        return ALPHA * below(outputs - targets)

loss = Loss()
"""
USED, UNUSED = "def used(x):\n    return 7 * x\n", "\ndef unused(x):\n    return 8 * x\n"
USED_LIST = "WEIGHTS = [0.5, 1.5]\n"
FILES = {
    "user_main.py": MAIN,
    "helpers.py": USED_LIST + USED + UNUSED,
    "package/__init__.py": "",
    "package/inner.py": USED,
}
CHANGES = {
    "constant": ("user_main.py", "ALPHA = 0.1", "ALPHA = 0.2"),
    "helper": ("user_main.py", "helpers.used(x)", "-helpers.used(x)"),
    "other module": ("helpers.py", "7 * x", "6 * x"),
    "list in a module": ("helpers.py", "0.5", "0.6"),
    "package": ("package/inner.py", "7 * x", "6 * x"),
    "method": ("user_main.py", "outputs - targets", "targets - outputs"),
    "class attribute": ("user_main.py", "factor = 3.0", "factor = 4.0"),
    "list of a class": ("user_main.py", "[8.0]", "[9.0]"),
    "static method": ("user_main.py", "x / 2", "x / 3"),
    "property": ("user_main.py", "5.0", "6.0"),
}


def imported_checksum(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: str) -> str:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(changes.get(name, text))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    for name in ("user_main", "helpers", "package", "package.inner"):
        sys.modules.pop(name, None)
    return checksum(importlib.import_module("user_main").loss)


@pytest.mark.parametrize("change", CHANGES)
def test_code_of_the_users_modules_counts(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, old, new = CHANGES[change]
    before = imported_checksum(tmp_path / "a", monkeypatch)
    assert imported_checksum(tmp_path / "b", monkeypatch, **{name: FILES[name].replace(old, new)}) != before


def test_formatting_and_driving_code_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that trains for more rounds continues its run."""
    before = imported_checksum(tmp_path / "a", monkeypatch)
    main = "# a comment\n" + MAIN.replace("0.1", "0.10").replace("(x):", "( x ):  # spaces")
    main += "\ndef main():\n    print('rounds = 20')\n"
    files = {
        "user_main.py": main,
        "helpers.py": "\n\n" + USED_LIST + USED + "# end" + UNUSED.replace("8", "9"),
    }
    assert imported_checksum(tmp_path / "b", monkeypatch, **files) == before


def run_cell(number: int, text: str, space: dict[str, Any]) -> None:
    """Run a cell as IPython does, whose source is in the cache of lines."""
    name = f"/nowhere/ipykernel_1/{number}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), space)


def test_cells_of_a_notebook_are_source() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    first = "ALPHA = 0.1\ndef scale(x):\n    return ALPHA * x\n"
    second = "class Loss:\n    def __call__(self, x):\n        return scale(x) + 1\n\nrounds = 10\n"
    run_cell(1, first, space)
    run_cell(2, second, space)
    before = checksum(space["Loss"]())
    run_cell(3, "# again\n" + first, space)
    run_cell(4, second.replace("10", "20"), space)
    assert checksum(space["Loss"]()) == before
    for cell in (first.replace("0.1", "0.2"), first.replace("* x", "+ x"), second.replace("+ 1", "+ 2")):
        run_cell(5, first, space)
        run_cell(6, second, space)
        run_cell(7, cell, space)
        assert checksum(space["Loss"]()) != before


def test_code_without_source_counts() -> None:
    checksums = set()
    for number in (2, 3):
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(f"def loss(x):\n    return {number} * x + sum({number} for _ in range(2))", space)
        checksums.add(checksum(space["loss"]))
    assert len(checksums) == 2


def test_checksums_are_equal_in_other_processes(tmp_path: Path) -> None:
    """Orders of sets and addresses differ between processes."""
    (tmp_path / "parts.py").write_text(
        "import torch\nfrom functools import partial\nNAMES = {'a', 'b', 'c', 'd', (1, 'e')}\n"
        "class Part:\n    def __init__(self):\n        self.lock = object()\n"
        "def loss(x, part):\n    return x if x in NAMES else torch.relu(x)\n"
        "from fedopt.runs.source_fingerprint import CodeReader\n"
        "print(CodeReader().checksum(partial(loss, part=Part(), tags=frozenset(NAMES))))\n"
    )
    command = [sys.executable, str(tmp_path / "parts.py")]
    texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert texts[0] == texts[1] != ""


def test_options_of_built_in_optimizers_count() -> None:
    first, again, other = (fedopt(sgd(), adam(beta1=b)) for b in (0.9, 0.9, 0.8))
    assert checksum(first.server) == checksum(again.server) != checksum(other.server)
    assert checksum(first.client) == checksum(other.client)


def test_weights_of_the_model_have_their_own_checksums() -> None:
    first, other = nn.Linear(2, 3), nn.Linear(2, 3)
    without = [CodeReader(weights=False).checksum(module) for module in (first, other, nn.Linear(2, 4))]
    assert without[0] == without[1] != without[2]
    assert checksum(first) != checksum(other)  # as a teacher in a closure
