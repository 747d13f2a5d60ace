"""Federations: clients by id, each with its examples, and the generators that need no download."""

from fedopt.data.federation import Arrays, Federation, Split, from_arrays, from_function, union

__all__ = ["Arrays", "Federation", "Split", "from_arrays", "from_function", "union"]
