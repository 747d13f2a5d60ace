"""Run records with given losses and evaluations, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopt.runs.records import RunRecord


def make_record(
    losses: Sequence[float | None],
    status: str = "done",
    tests: Mapping[int, float] | None = None,
    every: int = 2,
    last_every: int = 2,
    **info: Any,
) -> RunRecord:
    train = [
        {
            "round": t,
            "split": "train",
            "loss": loss,
            "clients": 0 if loss is None else 2,
            "rejected": 2 * (loss is None),
        }
        for t, loss in enumerate(losses, 1)
    ]
    test = [{"round": t, "split": "test", "recall_at_5": v} for t, v in (tests or {}).items()]
    config = {"eval": {"every": every, "last_every": last_every}}
    return RunRecord(Path("r"), {"status": status, "algorithm": "a", **info}, config, train, test)
