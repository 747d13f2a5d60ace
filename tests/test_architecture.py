"""The shape of the package: imports point one way, files stay small, nothing runs code from data."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedopt

SOURCE = Path(fedopt.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# A module may import from its own package and from layers below it, never sideways or upwards.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"api"},
    {"reproduction"},
    {"sweep", "bench"},
    {"report"},
    {"display"},
    {"analysis"},
    {"runs"},
    {"engine"},
    {"algorithms", "tasks"},
    {"models", "data"},
    {"files"},
    {"formatting", "rng", "errors", "version"},
]
DEPTH = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}


def name_of(file: Path) -> str:
    """The dotted name of a module: fedopt.engine.round."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): ast.parse(file.read_text(), str(file)) for file in FILES}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that a tree imports, also inside functions; `from fedopt import rng` is fedopt.rng."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer they reach into"
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in MODULES else base


def part_of(module: str) -> str:
    return module.split(".")[1]


def inner_imports(module: str) -> set[str]:
    return {name for name in imports(MODULES[module]) if name.startswith("fedopt.")}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "fedopt"])
def test_imports_point_one_way(module: str) -> None:
    here = part_of(module)
    for imported in inner_imports(module):
        there = part_of(imported)
        assert there == here or DEPTH[there] > DEPTH[here], f"{module} imports {imported}"


def test_every_part_of_the_package_has_a_layer() -> None:
    assert {part_of(name) for name in MODULES if name != "fedopt"} <= set(DEPTH)


def test_no_module_imports_itself_through_others() -> None:
    packages = {name_of(file.parent / "__init__.py") for file in FILES if file.name == "__init__.py"}
    graph = {name: inner_imports(name) - packages for name in MODULES if name not in packages}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_module_can_be_read_in_one_sitting(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 400


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(MODULES[module])


RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "runpy", "code"}
FORBIDDEN = {"eval", "exec", "compile", "__import__", "torch.load", "pickle.load", "pickle.loads"}
# Sending a problem to workers pickles it; this module asks beforehand whether that can be done.
EXCEPTIONS = {("fedopt.engine.executors.processes", "pickle")}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_unpickles_or_evaluates_data(module: str) -> None:
    tree = MODULES[module]
    used = {(module, name) for name in imports(tree) if name.split(".")[0] in RUNS_CODE}
    assert used <= EXCEPTIONS
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        assert ast.unparse(call.func) not in FORBIDDEN, ast.unparse(call)
        assert "allow_pickle=True" not in ast.unparse(call)


def test_the_picklability_check_only_writes() -> None:
    tree = MODULES["fedopt.engine.executors.processes"]
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"
    }
    assert used <= {"dumps", "PicklingError"}


def test_the_public_list_is_sorted_complete_and_importable() -> None:
    assert fedopt.__all__ == sorted(fedopt.__all__)
    assert dir(fedopt) == fedopt.__all__
    named = MODULES["fedopt"]
    announced = {
        alias.name
        for node in ast.walk(named)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedopt.")
        for alias in node.names
    }
    assert announced == set(fedopt.__all__)  # what type checkers see is what is there
    for name in fedopt.__all__:
        assert getattr(fedopt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedopt.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["fedopt", "fedopt.cli", "fedopt.errors", "fedopt.version"])
def test_importing_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
