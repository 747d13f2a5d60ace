"""The type of the fixture `pool`."""

from __future__ import annotations

from collections.abc import Callable

from fedopt.engine.executors.processes import Processes

Pool = Callable[[int], Processes]
