"""The workloads of `fedopt bench`: the paper's tasks at its settings, and small models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedopt.tasks import PAPER_TASKS


@dataclass(frozen=True)
class WorkloadDefinition:
    """Task, settings and executors of a workload. The first executor gives its main numbers."""

    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None  # full batches per client; None: one epoch
    executors: tuple[str, ...] = ("processes",)


# Ten clients with ten batches of ten examples each: the duration of a round is mostly overhead.
_SMALL_SETTINGS = {"data.clients": 3000, "clients_per_round": 10, "client.batch_size": 10}
_SMALL_EXECUTORS = ("compiled", "vectorised", "processes", "serial")

WORKLOADS: Mapping[str, WorkloadDefinition] = {
    **{task: WorkloadDefinition(task) for task in PAPER_TASKS},
    "small_lr": WorkloadDefinition("synthetic_lr", _SMALL_SETTINGS, 10, _SMALL_EXECUTORS),
    "small_mlp": WorkloadDefinition("synthetic_mlp", _SMALL_SETTINGS, 10, _SMALL_EXECUTORS),
}
