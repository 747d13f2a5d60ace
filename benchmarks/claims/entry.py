"""An entry of the plan: one command, its directory and its limit of CPU time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DATASETS = {"data/so": "stackoverflow", "data/shakespeare": "shakespeare", "data/digits": "emnist"}


class Entry(NamedTuple):
    """One command, and the directory and the result file that belong to it."""

    name: str  # of the result file; also of the directory, unless `directory` is given
    arguments: tuple[str, ...]  # of fedopt, without --out
    cpu_minutes: float  # the limit of CPU time of each process of the command
    directory: str = ""
    own_data: str = ""  # the store that a task of the claims reads; others name theirs with --data
    kill_at: int = 0  # the round after which the process is killed once, to be resumed; 0: never

    @property
    def out(self) -> str:
        """The directory that the command writes, relative to the working directory."""
        return f"runs/{self.directory or self.name}"

    @property
    def data(self) -> str | None:
        """The store of real data that the command needs; None for synthetic data."""
        value = self.own_data or self.option("--data")
        return value if value in DATASETS else None

    def option(self, name: str) -> str | None:
        """Return the value of an option of the command."""
        return self.arguments[self.arguments.index(name) + 1] if name in self.arguments else None

    def command(self, out: str = "") -> list[str]:
        """Return the command, with its own or another directory."""
        return ["fedopt", *self.arguments, "--out", out or self.out]


def set_options(settings: Mapping[str, object]) -> list[str]:
    """Return the options that set configuration keys."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
