"""References to Python objects in the form `module:name`, for example `my_project.tasks:digits`.

The current directory is importable, as with `python -m`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from fedopt.errors import UnknownName, UserCodeError, UserError


def is_reference(name: str) -> bool:
    """Return whether a name has the form `module:name`.

    >>> is_reference("my_project.tasks:digits"), is_reference("emnist_cr")
    (True, False)
    """
    return ":" in name


def load_object(reference: str, kind: str) -> Any:
    """Import the object of a reference. `kind` says what it is for, such as "task"."""
    module_name, _, attribute = reference.partition(":")
    _check_form(reference, module_name, attribute, kind)
    target = _import(module_name, reference, kind)
    for position, part in enumerate(parts := attribute.split(".")):
        if not hasattr(target, part):
            names = [name for name in vars(target) if not name.startswith("_")]
            close = difflib.get_close_matches(part, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "check the spelling"
            place = ".".join([module_name, *parts[:position]])
            raise UnknownName(
                f"{kind} {reference!r}: {place} has no {part!r}; {hint}", kind=kind, name=reference
            )
        target = getattr(target, part)
    return target


def find_reference(target: object) -> str | None:
    """Return the reference of an object that is an attribute of an imported module, if there is one.

    Objects of the main program have none, because other processes cannot import it.
    """
    for name, module in list(sys.modules.items()):
        if name != "__main__" and getattr(module, "__spec__", None) is not None:
            for attribute, value in list(vars(module).items()):
                if value is target and attribute.isidentifier():
                    return f"{name}:{attribute}"
    return None


def call_user_function(function: Callable[..., Any], reference: str, kind: str) -> Any:
    """Call a user's function without arguments. An exception becomes an error of one line."""
    missing = required_arguments(function)
    if missing:
        raise UserCodeError(
            f"{kind} {reference!r} needs the argument {missing[0]!r}; give it a default", reference=reference
        )
    try:
        return function()
    except UserError:
        raise
    except Exception as error:
        raise user_code_error(f"{kind} {reference!r} failed", reference, error) from error


def required_arguments(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments without a default."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def file_name(name: str) -> str:
    """Return a name without characters that are special in paths or in a shell.

    >>> file_name("my_project.algorithms:feddyn"), file_name("feddyn(alpha=0.1)")
    ('my_project.algorithms-feddyn', 'feddyn-alpha-0.1')
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "own"


def _check_form(reference: str, module: str, attribute: str, kind: str) -> None:
    if module.endswith(".py") or "/" in module:
        suggestion = module.removesuffix(".py").strip("./").replace("/", ".")
        raise UnknownName(
            f"{kind} {reference!r} names a file; name the module: {suggestion}:{attribute or 'NAME'}",
            kind=kind,
            name=reference,
        )
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise UnknownName(
            f"{kind} {reference!r} is not of the form module:name, for example my_project.tasks:digits",
            kind=kind,
            name=reference,
        )


def _import(module: str, reference: str, kind: str) -> Any:
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()  # the file may be newer than the directory listing that Python has cached
    try:
        return importlib.import_module(module)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module + ".").startswith(error.name + "."):
            message = f"{kind} {reference!r}: {_missing_module(error.name, directory)}"
            raise UnknownName(message, kind=kind, name=reference) from error
        raise user_code_error(f"{kind} {reference!r}: cannot import {module}", reference, error) from error
    except Exception as error:
        raise user_code_error(f"{kind} {reference!r}: cannot import {module}", reference, error) from error


def _missing_module(name: str, directory: str) -> str:
    """Explain that a module does not exist, with the closest name in its package."""
    package, _, last = name.rpartition(".")
    if not package:
        return (
            f"there is no module {name!r} in {directory} or among the installed packages; change to the "
            "directory that contains it, or install it"
        )
    names = [module.name for module in pkgutil.iter_modules(getattr(sys.modules[package], "__path__", []))]
    close = difflib.get_close_matches(last, names, n=1)
    hint = f"did you mean {package}.{close[0]}?" if close else f"it has {', '.join(names) or 'none'}"
    return f"the package {package} has no module {last!r}; {hint}"


def user_code_error(what: str, reference: str, error: Exception) -> UserCodeError:
    """Build the error for an exception in a user's code. It names the line of this code."""
    reason = " ".join(str(error).split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_user_frame(frame)]
    path, line = (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
    if isinstance(error, SyntaxError):
        path, line, reason = error.filename, error.lineno, error.msg
    place = "" if path is None else f" ({os.path.relpath(path)}, line {line})"
    return UserCodeError(
        f"{what}: {type(error).__name__}: {reason}{place}", reference=reference, path=path, line=line
    )


def _is_user_frame(frame: traceback.FrameSummary) -> bool:
    libraries = (os.path.dirname(__file__), os.path.dirname(importlib.__file__), "<frozen")
    return not frame.filename.startswith(libraries) and "site-packages" not in frame.filename
