"""Checksums of functions: their source without comments, and the values that they use.

A function refers to others through closures, defaults, arguments of `functools.partial`, attributes of
objects and global names. All of them are followed. Functions of installed packages count by name, so that an
update of a package does not change the checksum.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from fedopt.algorithms import Algorithm

_SIMPLE = (type(None), bool, int, float, complex, str, bytes)
_LAYER_SETTINGS = (*_SIMPLE, tuple, FunctionType, BuiltinFunctionType, partial)
_FUNCTIONS = ("init", "client", "server")  # of an algorithm


def algorithm_fingerprint(algorithm: Algorithm) -> dict[str, str]:
    """Return a checksum for each function of an algorithm, and the names of the vectors that travel."""
    vectors = [algorithm.sends, algorithm.returns, algorithm.keeps]
    checksums = {f"function {name}": source_checksum(getattr(algorithm, name)) for name in _FUNCTIONS}
    return {**checksums, "vectors": source_checksum(tuple(map(tuple, vectors)))}


def source_checksum(value: Any) -> str:
    """Return the SHA-256 of a function or value and everything it refers to."""
    digest = hashlib.sha256()
    for text in _describe(value, {}):
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()


def module_checksum(module: nn.Module) -> str:
    """Return the SHA-256 of a model without its tensors: classes and settings of its layers, and their code.

    Private attributes are left out, because they belong to torch.
    """
    digest = hashlib.sha256()
    for name, layer in module.named_modules():
        settings = {
            key: value
            for key, value in vars(layer).items()
            if isinstance(value, _LAYER_SETTINGS) and key != "training" and not key.startswith("_")
        }
        for text in (name, *_describe(type(layer), {}), *_describe_fields(settings, {})):
            digest.update(f"{text}\n".encode())
    return digest.hexdigest()


def _describe(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield texts that are equal for equal functions and values. Mutable containers are left out."""
    if isinstance(value, _SIMPLE):
        yield repr(value)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, list | dict | set) or id(value) in seen:
        yield type(value).__name__
    else:
        seen[id(value)] = value  # the reference keeps the id unique
        yield from _describe_object(value, seen)


def _describe_object(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.ascontiguousarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
        yield f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    elif isinstance(value, FunctionType):
        yield from _describe_function(value, seen)
    elif isinstance(value, MethodType):
        yield from _describe_all((value.__func__, value.__self__), seen)
    elif isinstance(value, BuiltinFunctionType):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, partial):
        yield from _describe_all((value.func, *value.args), seen)
        yield from _describe_fields(value.keywords, seen)
    elif isinstance(value, type):
        yield value.__qualname__
        if _is_user_code(value.__module__):
            yield from _describe_all([f for f in vars(value).values() if isinstance(f, FunctionType)], seen)
    else:
        yield from _describe(type(value), seen)
        if isinstance(value, tuple):
            yield from _describe_all(value, seen)
        else:
            yield from _describe_fields(getattr(value, "__dict__", {}), seen)


def _describe_all(values: Any, seen: dict[int, Any]) -> Iterator[str]:
    for value in values:
        yield from _describe(value, seen)


def _describe_fields(fields: Mapping[str, Any], seen: dict[int, Any]) -> Iterator[str]:
    for name in sorted(fields):
        yield name
        yield from _describe(fields[name], seen)


def _describe_function(function: FunctionType, seen: dict[int, Any]) -> Iterator[str]:
    is_user_code = _is_user_code(function.__module__)
    yield _source(function) if is_user_code else f"{function.__module__}.{function.__qualname__}"
    yield from _describe_all(function.__defaults__ or (), seen)
    yield from _describe_fields(function.__kwdefaults__ or {}, seen)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from _describe_fields({name: _cell_value(cell) for name, cell in cells}, seen)
    if is_user_code:
        used, assigned = _global_names(function.__code__)
        values = {n: function.__globals__[n] for n in used - assigned if n in function.__globals__}
        kinds = (*_SIMPLE, FunctionType, type)
        yield from _describe_fields({n: v for n, v in values.items() if isinstance(v, kinds)}, seen)


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _global_names(code: CodeType) -> tuple[set[str], set[str]]:
    """The global names that a function and its inner functions use, and those that they assign."""
    used, assigned = set(code.co_names), set[str]()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_GLOBAL":
            assigned.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more_used, more_assigned = _global_names(inner)
            used, assigned = used | more_used, assigned | more_assigned
    return used, assigned


def _source(function: FunctionType) -> str:
    """The source without comments and formatting; the bytecode of a function without a source file."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return function.__code__.co_code.hex() + repr(function.__code__.co_names)
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:  # a lambda inside an expression
        return source.strip()


def _is_user_code(module: str | None) -> bool:
    """Whether a module is neither part of fedopt nor of Python nor installed."""
    top = (module or "").partition(".")[0]
    if top == "fedopt" or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    file = str(getattr(sys.modules.get(module or ""), "__file__", "") or "")
    return "site-packages" not in file and "dist-packages" not in file
