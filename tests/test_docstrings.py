"""Public functions describe their arguments and result, with an example that a doctest runs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from griffe import Docstring, DocstringSectionKind, Parser

import fedopt
from fedopt import algorithms, reports

ALGORITHM_FILES = ("fedopt", "adaptive", "scaffold", "fedprox", "adaalter", "lookahead", "centralized")
PUBLIC = {f"fedopt.{name}": getattr(fedopt, name) for name in fedopt.__all__}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
FUNCTIONS |= {f"partition.{name}": getattr(fedopt.partition, name) for name in fedopt.partition.__all__}
FUNCTIONS |= {
    f"reports.{name}": getattr(reports, name)
    for name in reports.__all__
    if inspect.isfunction(getattr(reports, name))
}
REFERENCE = Path(__file__).parent.parent / "docs" / "reference" / "packages.md"
for name in re.findall(r"^::: (.*)$", REFERENCE.read_text(), re.MULTILINE):
    module, _, last = name.rpartition(".")
    if inspect.isfunction(value := getattr(import_module(module), last)):
        FUNCTIONS[name] = value
BUILDERS = (*algorithms.OPTIMIZERS.values(), *(entry.build for entry in algorithms.ALGORITHMS.values()))
FUNCTIONS |= {f"algorithms.{function.__name__}": function for function in BUILDERS}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}


def sections(value: object) -> dict[str, Any]:
    """Return the content of each section of a docstring by its kind."""
    parsed = Docstring(inspect.getdoc(value) or "").parse(Parser.google, warnings=False)
    return {section.kind.value: section.value for section in parsed}


def summary(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_function_describes_arguments_and_result_with_an_example(function: Callable[..., Any]) -> None:
    found = sections(function)
    described = [parameter.name for parameter in found.get(DocstringSectionKind.parameters.value, [])]
    assert summary(function).endswith(".")
    assert described == list(inspect.signature(function).parameters)
    assert DocstringSectionKind.returns.value in found
    assert DocstringSectionKind.examples.value in found


@pytest.mark.parametrize("public", CLASSES.values(), ids=CLASSES)
def test_class_describes_fields_and_methods(public: type) -> None:
    assert summary(public).endswith(".")
    fields = getattr(public, "_fields", None) or getattr(public, "__dataclass_fields__", {})
    described = [one.name for one in sections(public).get(DocstringSectionKind.attributes.value, [])]
    assert described == list(fields)
    members = {name: value for name, value in vars(public).items() if not name.startswith("_")}
    members = {
        name: getattr(value, "__func__", value) for name, value in members.items() if name not in fields
    }
    undocumented = [name for name, value in members.items() if callable(value) and not summary(value)]
    undocumented += [n for n, value in members.items() if isinstance(value, property) and not summary(value)]
    assert undocumented == []


def docstring_share(path: Path) -> float:
    """Return the share of docstrings in the lines of a file that are not empty."""
    text = path.read_text()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    docs = [doc for node in nodes if (doc := ast.get_docstring(node, clean=False)) is not None]
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(len([line for line in doc.splitlines() if line.strip()]) for doc in docs) / len(lines)


@pytest.mark.parametrize("name", ALGORITHM_FILES)
def test_at_least_a_quarter_of_an_algorithm_file_is_docstring(name: str) -> None:
    assert docstring_share(Path(inspect.getfile(algorithms)).parent / f"{name}.py") >= 0.25
