"""Small runs of several algorithms, and ways to interrupt them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small

from fedopt.algorithms import ALGORITHMS
from fedopt.engine.loop import Step
from fedopt.runs.result import RunResult

ROUNDS = 5


RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "centralized": ("centralized", {"clients_per_round": 1, "client.optimizer": "adam"}),
    "plateau": (
        "fedavgm",
        {
            "client.schedule": "plateau",
            "client.window": 1,
            "client.patience": 1,
            "client.min_delta": 10.0,  # no round is that much better: the rate falls again and again
            "client.factor": 0.5,
        },
    ),
}


class Stop(Exception):
    """Interrupts a run like an unexpected error."""


def stop_after(round: int) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        if step.position.round == round:
            raise Stop

    return watch


def train(case: str, out: Path | None, every: int = 1, **options: Any) -> RunResult:
    algorithm, settings = RUNS[case]
    settings = settings | {"rounds": ROUNDS, "eval.every": 2, "checkpoint.every": every}
    settings |= options.pop("settings", {})
    return small.run(None, algorithm, settings, out=out, **options)


def interrupted(case: str, out: Path, every: int, after: int, **options: Any) -> None:
    with pytest.raises(Stop):
        train(case, out, every, on_step=stop_after(after), **options)


def rows(out: Path) -> list[tuple[int, int]]:
    """Client and round of each row on disk."""
    names = [path.stem.split("-") for path in sorted((out / "clients").iterdir())]
    return [(int(client), int(t)) for client, t in names]
