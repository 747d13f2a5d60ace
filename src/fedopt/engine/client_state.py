"""Vectors that clients keep between rounds, such as SCAFFOLD's c_i. Only sampled clients have a row."""

from __future__ import annotations

from typing import Protocol

from fedopt.algorithms import Vector


class ClientMemory(Protocol):
    """A table with a row of vectors for each client. A row can be read from the next round on."""

    def read(self, client: int) -> tuple[Vector, ...] | None: ...

    def write(self, t: int, client: int, vectors: tuple[Vector, ...]) -> None: ...

    def discard(self, t: int) -> None:
        """Undo the writes of round t."""


class MemoryTable:
    """A table in memory, for runs without a directory."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Vector, ...]] = {}
        self._before: dict[int, tuple[Vector, ...] | None] = {}
        self._t = -1

    def read(self, client: int) -> tuple[Vector, ...] | None:
        """Return copies: a client may change them in place, and be left out of the round."""
        row = self._rows.get(client)
        return None if row is None else tuple(v.clone() for v in row)

    def write(self, t: int, client: int, vectors: tuple[Vector, ...]) -> None:
        if t != self._t:
            self._t, self._before = t, {}
        self._before[client] = self._rows.get(client)
        self._rows[client] = vectors

    def discard(self, t: int) -> None:
        for client, row in self._before.items():
            if row is None:
                del self._rows[client]
            else:
                self._rows[client] = row
        self._before = {}
