"""Runs: configuration, execution, the run directory and its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedopt.lazy import lazy_names

if TYPE_CHECKING:
    from fedopt.runs.client_table import check_disk, client_state_bytes
    from fedopt.runs.directory import remove_checkpoints
    from fedopt.runs.records import LAST_ROUNDS, RunRecord
    from fedopt.runs.timing import time_client, time_evaluation

__all__ = [
    "LAST_ROUNDS",
    "RunRecord",
    "check_disk",
    "client_state_bytes",
    "remove_checkpoints",
    "time_client",
    "time_evaluation",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fedopt.runs.client_table": "check_disk client_state_bytes",
            "fedopt.runs.directory": "remove_checkpoints",
            "fedopt.runs.records": "LAST_ROUNDS RunRecord",
            "fedopt.runs.timing": "time_client time_evaluation",
        },
    )
