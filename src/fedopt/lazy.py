"""Packages whose names are imported on first use, so that workers and `fedopt --help` start fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    `modules` has the public names of each module, separated by spaces. The name of a module directly in the
    package stands for the module itself.
    """
    sources = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(sources[name])
        return module if sources[name] == f"{package}.{name}" else getattr(module, name)

    return get, lambda: sorted(sources)
