"""The package of the paper and the examples use public names only, and `fedopt` does not know the paper.

Public are the names in `fedopt.__all__` and in the `__all__` of its first-level packages and modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedopt

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
USERS = [*(SOURCE / "fedopt_paper").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
REFERENCE = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))


def is_module(name: str) -> bool:
    """Whether this is a package, or a module directly in one."""
    return name.count(".") <= 1 and find_spec(name) is not None


def used_names(file: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports from other packages, or reads from an imported module."""
    owners = {"fedopt"} if SOURCE in file.parents else {"fedopt", "fedopt_paper"}
    modules: dict[str, str] = {}  # by the name in the file
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        else:
            continue
        for name, full in imported.items():
            if full.partition(".")[0] in owners:
                if is_module(full):
                    modules[name] = full
                else:
                    yield full
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            yield f"{modules[ast.unparse(node.value)]}.{node.attr}"


def is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return is_module(module) and last in import_module(module).__all__


@pytest.mark.parametrize("file", USERS, ids=lambda file: str(file.relative_to(ROOT)))
def test_users_of_the_package_use_public_names(file: Path) -> None:
    assert {name for name in used_names(file) if not is_public(name)} == set()


def test_used_names_are_in_the_reference() -> None:
    names = {name for file in USERS for name in used_names(file)}
    names = {name for name in names if name.startswith("fedopt.") and not is_module(name)} - {
        "fedopt.__version__"
    }
    shorter = {name for name in names if name.rpartition(".")[2] in fedopt.__all__}
    missing = {name for name in names - shorter if f"::: {name}\n" not in REFERENCE}
    missing |= {name for name in shorter if f"::: fedopt.{name.rpartition('.')[2]}\n" not in REFERENCE}
    assert missing == set()


def test_internal_names_are_found(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(
        "import fedopt\nfrom fedopt.engine.loop import train\nfrom fedopt import tasks\ntasks._ALL\n"
    )
    assert [name for name in used_names(file) if not is_public(name)] == [
        "fedopt.engine.loop.train",
        "fedopt.tasks._ALL",
    ]


def test_the_library_does_not_name_the_package_of_the_paper() -> None:
    files = (SOURCE / "fedopt").rglob("*.py")
    assert [str(file) for file in files if "fedopt_paper" in file.read_text()] == []
