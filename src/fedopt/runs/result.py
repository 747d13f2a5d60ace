"""The result of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedopt.algorithms import Vector
from fedopt.engine.initial_model import build_module
from fedopt.engine.problem import Problem
from fedopt.formatting import ABSENT, NotebookDisplay, TextTable, count_noun, metric_unit
from fedopt.models.flat import Flat
from fedopt.runs.records import averaged_rounds, count_rejected, last_evaluation

_SUMMARY = (
    "task algorithm rounds seed train_loss metric last value params x_sha256 seconds rejected data".split()
)


@dataclass(frozen=True)
class RunResult(NotebookDisplay):
    """The result of `fedopt.run`. `print(result)` and notebooks show the evaluations as a table.

    Attributes:
        task: name of the task.
        algorithm: name of the algorithm.
        rounds: number of rounds.
        seed: the seed.
        train_loss: mean training loss over the last 100 rounds.
        metric: name of the task's main metric.
        value: mean of the metric over the evaluations of the last 100 rounds.
        params: number of trainable parameters.
        x_sha256: checksum of the final vector's little-endian float32 bytes.
        seconds: time of the training.
        x: the final parameters as one vector.
        train: the lines of metrics.jsonl about rounds.
        test: the lines of metrics.jsonl about evaluations; `test[-1]` is the last one.
        full_test: metrics on the full test set, if eval.final is "full".
        data: "synthetic", or the directory of the data.
        path: the run directory, if there is one.
        problem: the task, the model and the data of the run.
        url: the URL of the run directory, if it is remote; `path` is then the local copy.
        fallback_reason: why "vectorised" or "compiled" trained clients one after the other; "" if it did not.
    """

    task: str
    algorithm: str
    rounds: int
    seed: int
    train_loss: float | None
    metric: str
    value: float | None
    params: int
    x_sha256: str
    seconds: float
    x: Vector = field(repr=False)
    train: list[dict[str, Any]] = field(repr=False)
    test: list[dict[str, Any]] = field(repr=False)
    full_test: dict[str, float | None] | None
    data: str
    path: Path | None
    problem: Problem = field(repr=False)
    url: str | None = None
    fallback_reason: str = ""

    @property
    def location(self) -> str | None:
        """The run directory as a path or URL."""
        return self.url or (None if self.path is None else str(self.path))

    @property
    def last(self) -> float | None:
        """The task's metric at the last evaluation."""
        return last_evaluation(self.test, self.metric).value

    @property
    def rejected(self) -> int:
        """The number of clients that were left out because their loss or update was not finite."""
        return count_rejected(self.train)

    @property
    def model(self) -> nn.Module:
        """The trained module in evaluation mode."""
        module = build_module(replace(self.problem, fixed=None))
        if self.problem.fixed is not None:
            self.problem.fixed.apply(module, copy=True)
        Flat(module, self.problem.buffers).bind(self.x.clone())
        return module.eval()

    def table(self) -> TextTable:
        """The evaluations during training."""
        unit = metric_unit(self.metric)
        rows = [
            [
                f"{line['round']}",
                _cell(line.get("loss"), "{:.4f}".format),
                _cell(line.get(self.metric), unit.format),
            ]
            for line in self.test
        ]
        rounds = count_noun(self.rounds, "round")
        title = f"{self.task}, {self.algorithm}, {rounds}, seed {self.seed}: {self.describe()}"
        return TextTable(title, ["round", "test loss", unit.name], rows)

    def describe(self) -> str:
        """Return the last evaluation, and the paper's mean over the last 100 rounds.

        For example: "accuracy 41.5 % at round 20 (mean of all 20 rounds: 22.7 %)".
        """
        unit, (round, last) = metric_unit(self.metric), last_evaluation(self.test, self.metric)
        if last is None and self.value is None:
            return f"{unit.name} {ABSENT}"
        shown = f"{unit.name} {ABSENT if last is None else unit.format(last)} at round {round}"
        if self.value is None:
            return shown
        return f"{shown} (mean of {averaged_rounds([self.rounds])}: {unit.format(self.value)})"

    def summary(self) -> dict[str, Any]:
        """The JSON object of `fedopt run --json`."""
        optional = {
            "full_test": self.full_test,
            "run": self.location,
            "fallback_reason": self.fallback_reason,
        }
        return {name: getattr(self, name) for name in _SUMMARY} | {k: v for k, v in optional.items() if v}


def _cell(value: float | None, to_text: Callable[[float], str]) -> str:
    return ABSENT if value is None else to_text(value)


def vector_sha256(x: Vector) -> str:
    return hashlib.sha256(x.detach().to(torch.float32).numpy().astype("<f4").tobytes()).hexdigest()
