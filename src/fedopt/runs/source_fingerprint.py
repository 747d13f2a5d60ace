"""Checksums of code: its source in files or cells of notebooks, and the values it uses."""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_PLAIN = (*_SIMPLE, tuple, torch.Tensor, np.ndarray, FunctionType, partial, nn.Module)
_OF_TORCH = {*vars(nn.Module()), "training"}  # attributes of every module
_CHANGES = {"append", "add", "extend", "insert", "update", "setdefault", "pop", "clear"}  # of containers
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_parse = cache(ast.parse)


class CodeReader:
    """Computes checksums. Without `weights`, parameters and buffers of modules do not count."""

    def __init__(self, weights: bool = True) -> None:
        self.weights = weights
        self.known: dict[int, tuple[Any, str]] = {}  # the references keep the ids unique

    def checksum(self, value: Any) -> str:
        if isinstance(value, _SIMPLE):
            return repr(value)
        if id(value) not in self.known:
            self.known[id(value)] = value, "cycle"
            self.known[id(value)] = value, hashlib.sha256("\n".join(self.parts(value)).encode()).hexdigest()
        return self.known[id(value)][1]

    def fields(self, values: Mapping[str, Any], code: Iterable[Any] = ()) -> Iterator[str]:
        """Values by name. Those that `code` itself changes, such as counters and records, do not count."""
        functions = [f for f in code if isinstance(f, FunctionType) and f.__name__ != "__init__"]
        changed = {name for function in functions for name in _changed_names(_source(function))}
        for name in sorted(values):
            if name not in changed or isinstance(values[name], torch.Tensor):
                yield f"{name} {self.checksum(values[name])}"

    def parts(self, value: Any) -> Iterator[str]:
        if isinstance(value, torch.Tensor):
            data = (
                value.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
            yield f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()}"
        elif isinstance(value, np.ndarray):
            data = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            yield f"{value.dtype} {value.shape} {hashlib.sha256(data).hexdigest()}"
        elif isinstance(value, FunctionType):
            yield from self.function(value)
        elif isinstance(value, MethodType):
            yield from map(self.checksum, (value.__func__, value.__self__))
        elif isinstance(value, partial):
            yield from map(self.checksum, (value.func, value.args, value.keywords))
        elif isinstance(value, type):
            yield value.__qualname__
            if _is_user_code(value.__module__):
                yield from self.fields(_members(value) | {"": value.__bases__}, _members(value).values())
        else:
            yield from self.instance(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        scope, code = function.__globals__, function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        values = {n: c.cell_contents for n, c in cells if c != CellType()} | (function.__kwdefaults__ or {})
        codes = [code] if _is_user_code(scope.get("__name__", "")) else []
        for code in codes:  # and those of inner functions, which are appended
            codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
            loads = [i for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
            values |= {i.argval: scope[i.argval] for i in loads if i.argval in scope}
        bytecode = repr([(c.co_code, [k for k in c.co_consts if isinstance(k, _SIMPLE)]) for c in codes])
        yield (ast.unparse(_source(function)) or bytecode) if codes else function.__qualname__
        names, paths = {name for code in codes for name in code.co_names}, list(values)
        for path in paths:  # of the user's modules, what the code names; inner modules are appended
            if isinstance(module := values[path], ModuleType):
                is_open = _is_user_code(module.__name__) and path.count(".") < 5
                inner = {f"{path}.{n}": vars(module)[n] for n in names & vars(module).keys() if is_open}
                values |= {path: module.__name__, **inner}
                paths += inner
        yield from self.fields(values | {"": function.__defaults__}, [function] if codes else ())

    def instance(self, value: Any) -> Iterator[str]:
        kind, fields = type(value), dict(getattr(value, "__dict__", {}))
        yield from (self.checksum(kind), getattr(value, "__qualname__", ""))
        if isinstance(value, list | tuple | set | frozenset):
            items = list(map(self.checksum, value))
            yield from items if isinstance(value, list | tuple) else sorted(items)
        elif isinstance(value, Mapping):
            yield from sorted(f"{self.checksum(key)} {self.checksum(item)}" for key, item in value.items())
        elif isinstance(value, nn.Module):
            fields = {n: v for n, v in fields.items() if n not in _OF_TORCH} | value._modules
            fields |= {**value._parameters, **value._buffers} if self.weights else {}
        slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        fields |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
        if not (is_user := _is_user_code(kind.__module__)) and not kind.__module__.startswith("fedopt."):
            shown = {n for n, v in fields.items() if isinstance(v, _PLAIN) and not n.startswith("_")}
            fields = {name: fields[name] for name in fields.keys() & {*shown, "__wrapped__"}}
        yield from self.fields(fields, _members(kind).values() if is_user else ())


def _members(kind: type) -> dict[str, Any]:
    """Attributes of a class without those that Python adds, such as methods of dataclasses."""
    items = {n: getattr(v, "__func__", getattr(v, "fget", v)) for n, v in vars(kind).items()}
    files = {n: v.__code__.co_filename for n, v in items.items() if isinstance(v, FunctionType)}
    added = {n for n in items if n[:2] == "__" and (files.get(n, "<string>") == "<string>" or "annot" in n)}
    return {name: value for name, value in items.items() if name not in added}


def _source(function: FunctionType) -> ast.AST:
    """The definition of a function, empty if there is no source."""
    code, places = function.__code__, set(function.__code__.co_positions())
    found: ast.AST = ast.Module([], [])
    with suppress(OSError, TypeError, SyntaxError):
        tree = _parse("".join(inspect.findsource(function)[0]))
        for node in ast.walk(tree):  # outer functions come before inner ones
            if getattr(node, "name", "<lambda>") == code.co_name and isinstance(node, _DEFINITIONS):
                body = node.body if isinstance(node.body, list) else [node.body]
                inside = [n for part in body for n in ast.walk(part) if isinstance(n, ast.expr)]
                if any((n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) in places for n in inside):
                    found = node
    return found


def _changed_names(source: ast.AST) -> Iterator[str]:
    for node in ast.walk(source):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.Attribute | ast.Subscript):
            is_set, name = isinstance(node.ctx, ast.Store), getattr(node, "attr", "")
            if is_set or name in _CHANGES:
                owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
                yield name if is_set and name else owner


def _is_user_code(module: str) -> bool:
    """Whether a module is neither part of fedopt nor of Python nor installed: those count by name."""
    file = str(getattr(sys.modules.get(module), "__file__", ""))
    is_known = module.partition(".")[0] in {"fedopt", *sys.stdlib_module_names}
    return module == "__main__" or not (is_known or "site-packages" in file or "dist-packages" in file)
