"""The architecture: layers, package cycles, unique names, small files, no code executed from data."""

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
TESTS = Path(__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PAPER_FILES = sorted((SOURCE.parent / "fedopt_paper").rglob("*.py"))

# A module may import from its own package and from lower layers only.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"api"},
    {"tuning"},
    {"reports"},
    {"runs"},
    {"engine"},
    {"algorithms", "tasks", "partition"},
    {"models", "data"},
    {"remote"},
    {"files", "references", "cache"},
    {"documents"},
    {"formatting", "intervals", "lazy", "rng", "errors", "processor", "version"},
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


def test_every_package_has_a_layer() -> None:
    assert {part_of(name) for name in MODULES if name != "fedopt"} <= set(DEPTH)


def test_modules_have_no_import_cycles() -> None:
    packages = {name_of(file.parent / "__init__.py") for file in FILES if file.name == "__init__.py"}
    graph = {name: inner_imports(name) - packages for name in MODULES if name not in packages}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def folder_of(module: str) -> str:
    """The dotted name of the folder that holds a module."""
    is_package = (SOURCE.parent / Path(*module.split("."), "__init__.py")).is_file()
    return module if is_package else module.rpartition(".")[0]


def test_packages_have_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        here = folder_of(module)
        for imported in inner_imports(module):
            there = folder_of(imported)
            # A package and its subpackages are one unit from the outside.
            if not (there + ".").startswith(here + ".") and not (here + ".").startswith(there + "."):
                graph.setdefault(here, set()).add(there)
    graph.pop("fedopt", None)  # modules at the top level belong to layers of their own, see LAYERS
    graphlib.TopologicalSorter(graph).prepare()


def test_class_names_are_unique() -> None:
    defined: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in defined.items() if len(modules) > 1} == {}


RUN_FILES = ("run.json", "metrics.jsonl", "config.toml", "checkpoints", "clients")
WRITES = ("write_atomically", "rmtree", "unlink", "rename", "replace", "mkdir", "write_text", "write_bytes")


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("fedopt.runs")])
def test_only_runs_writes_files_of_a_run(module: str) -> None:
    """A call that writes or deletes and names a file of a run directory belongs to `runs/`."""
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in WRITES:
            constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not constants & set(RUN_FILES), ast.unparse(node)


@pytest.mark.parametrize("file", [*FILES, *PAPER_FILES], ids=name_of)
def test_modules_have_at_most_400_lines(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 400


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_a_docstring(module: str) -> None:
    assert ast.get_docstring(MODULES[module])


RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "runpy", "code"}
FORBIDDEN = {"eval", "exec", "compile", "__import__", "torch.load", "pickle.load", "pickle.loads"}
# A problem is pickled when it is sent to a worker. This module checks beforehand that this works.
EXCEPTIONS = {("fedopt.engine.executors.processes", "pickle")}


@pytest.mark.parametrize("module", MODULES)
def test_no_code_is_executed_from_data(module: str) -> None:
    tree = MODULES[module]
    used = {(module, name) for name in imports(tree) if name.split(".")[0] in RUNS_CODE}
    assert used <= EXCEPTIONS
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        assert ast.unparse(call.func) not in FORBIDDEN, ast.unparse(call)
        assert "allow_pickle=True" not in ast.unparse(call)


def test_pickle_is_used_for_writing_only() -> None:
    tree = MODULES["fedopt.engine.executors.processes"]
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"
    }
    assert used <= {"dumps", "PicklingError"}


def test_public_names_are_sorted_complete_and_importable() -> None:
    assert fedopt.__all__ == sorted(fedopt.__all__)
    assert dir(fedopt) == fedopt.__all__
    named = MODULES["fedopt"]
    announced = {
        alias.name
        for node in ast.walk(named)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == "fedopt"
        and node.module != "fedopt.lazy"
        for alias in node.names
    }
    assert announced == set(fedopt.__all__)  # type checkers see the same names
    for name in fedopt.__all__:
        assert getattr(fedopt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fedopt.nothing  # noqa: B018


def test_no_submodule_has_the_name_of_a_public_function() -> None:
    """Importing `fedopt.report` as a module would replace the function `fedopt.report`."""
    modules = {part_of(name) for name in MODULES if name != "fedopt"}
    assert modules & set(fedopt.__all__) == {"partition"}  # which is a module


@pytest.mark.parametrize(
    "module", ["fedopt", "fedopt.cli", "fedopt.errors", "fedopt.version", "fedopt_paper.command"]
)
def test_import_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


TEST_FILES = sorted(TESTS.rglob("test_*.py"))


def test_the_test_tree_mirrors_the_source_tree() -> None:
    folders = {file.relative_to(TESTS).parts[0] for file in TEST_FILES if file.parent != TESTS}
    packages = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file()}
    assert folders <= packages | {
        "docs",
        "paper",
        "claims",
        "speed",
    }  # fedopt_paper, docs/, benchmarks/


def test_test_files_have_unique_names() -> None:
    names = [file.name for file in TEST_FILES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("file", TEST_FILES, ids=lambda file: file.stem)
def test_test_modules_do_not_import_each_other(file: Path) -> None:
    modules = {other.stem for other in TEST_FILES}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert not modules & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module not in modules
