"""Nested examples: any nesting of tuples and dicts of arrays.

The engine works on a flat tuple of arrays. `flatten` converts nested arrays to such a tuple and a
`Structure`, and `Structure.unflatten` restores the nesting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedopt.errors import DataError


class Structure(NamedTuple):
    """The nesting of arrays: an array, a tuple or a dict.

    >>> arrays, structure = flatten(({"ids": np.zeros(3), "mask": np.ones(3)}, np.zeros(3)))
    >>> len(arrays), str(structure)
    (3, '({ids, mask}, array)')
    >>> structure.unflatten(["a", "b", "c"])
    ({'ids': 'a', 'mask': 'b'}, 'c')
    """

    kind: str = "array"
    keys: tuple[str, ...] = ()  # of a dict
    children: tuple[Structure, ...] = ()  # of a tuple or a dict

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Put `leaves`, one per array, into this nesting."""
        return self._take(iter(leaves))

    def _take(self, leaves: Iterator[Any]) -> Any:
        if self.kind == "array":
            return next(leaves)
        values = [child._take(leaves) for child in self.children]
        return tuple(values) if self.kind == "tuple" else dict(zip(self.keys, values, strict=True))

    def __str__(self) -> str:
        if self.kind == "array":
            return "array"
        if self.kind == "tuple":
            return f"({', '.join(map(str, self.children))})"
        entries = zip(self.keys, self.children, strict=True)
        return f"{{{', '.join(k if c.kind == 'array' else f'{k}: {c}' for k, c in entries)}}}"


def flatten(tree: Any, name: str = "") -> tuple[tuple[NDArray[Any], ...], Structure]:
    """Return the arrays of nested tuples and dicts in order, and their structure.

    Entries of dicts are ordered by key, so that equal dicts have equal structures. Everything else is
    converted to an array: a list is one array. Errors name the entry; `name` is the name of the whole.
    """
    if isinstance(tree, Mapping):
        entries = {str(key): value for key, value in tree.items()}
        keys = tuple(sorted(entries))
        parts = [flatten(entries[key], key) for key in keys]
    elif isinstance(tree, tuple):
        keys, parts = (), [flatten(value, f"{name}[{i}]" if name else "") for i, value in enumerate(tree)]
    else:
        return (as_array(tree, name),), Structure()
    kind = "dict" if isinstance(tree, Mapping) else "tuple"
    arrays = tuple(array for part, _ in parts for array in part)
    return arrays, Structure(kind, keys, tuple(structure for _, structure in parts))


def as_array(value: Any, name: str = "") -> NDArray[Any]:
    """Convert an array, a tensor or a list to a numeric NumPy array with a row per example."""
    if hasattr(value, "detach"):  # a tensor; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        array = np.empty(0, dtype=object)
    is_too_large = array.dtype == np.uint64 and array.max(initial=0) >= 1 << 63  # would become negative
    if array.dtype.kind in "biuf" and array.ndim > 0 and not is_too_large:
        return array
    if array.dtype.kind == "O" and all(np.ndim(row) > 0 for row in array.flat):
        problem = "has rows of different lengths; pad them to a common length"
    elif array.ndim == 0 and array.dtype.kind in "biuf":
        problem = "is a single number; expected an array with a row per example"
    elif is_too_large:
        problem = f"has the integer {array.max()}; allowed: up to 2^63 - 1"
    else:
        problem = "is not numeric; remove it or encode it as numbers"
    raise DataError(f"{repr(name) if name else 'an array'} {problem}", column=name or None)
