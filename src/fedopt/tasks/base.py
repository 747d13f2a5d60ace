"""Tasks: data, model, loss, metrics and default settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.data import Arrays, Federation
from fedopt.errors import ModelError
from fedopt.tasks.batch import Batch

# (examples of a batch, generator for augmentation in training or None in evaluation, **options) -> batch
Prepare = Callable[..., Batch]
# (outputs, targets, **options) -> the loss of each example, or their mean as a scalar
Loss = Callable[..., Tensor]
# (outputs, targets) -> numerator and denominator of each example; the metric is sum / sum
Metric = Callable[..., tuple[Tensor, Tensor]]
# (examples of a client, number of rows of the first parameter) -> the rows that the examples use, ascending,
# and the examples renumbered for a model that has only these rows. Both models give the same outputs.
Touched = Callable[[Arrays, int], tuple[NDArray[np.int64], Arrays]]


BETTER = ("higher", "lower")  # whether a higher or a lower metric is better
# What the lines of metrics.jsonl hold beside the metrics (`metrics_lines` in runs/metrics_log.py).
_RECORDED = (
    *("round", "split", "loss", "seconds", "clients", "rejected", "rejected_clients", "skipped", "examples"),
    *("bytes_down", "bytes_up", "bytes_total", "client_lr", "server_lr"),
)


class Rates(NamedTuple):
    """log10 of the paper's best rates for one algorithm on one task."""

    client_lr: float
    server_lr: float
    tau: float | None = None


class LogRange(NamedTuple):
    """Equally spaced log10 values of a hyperparameter, both ends included."""

    first: float
    last: float
    step: float = 0.5

    @property
    def values(self) -> tuple[float, ...]:
        """The log10 values in ascending order.

        >>> LogRange(-1, 0.5).values
        (-1.0, -0.5, 0.0, 0.5)
        """
        steps = math.floor((self.last - self.first) / self.step + 1e-9)
        return tuple(round(self.first + step * self.step, 6) + 0.0 for step in range(steps + 1))


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Default settings of a task, and grids and best values of its learning rates."""

    rounds: int
    clients_per_round: int
    batch_size: int
    client_grid: LogRange
    server_grid: LogRange
    tau_grid: LogRange = LogRange(-5, -1, 1)
    rates: Mapping[str, Rates]  # by algorithm


@dataclass(frozen=True, kw_only=True)
class PaperSettings(TaskSettings):
    """Settings and results of a task in the paper.

    Rounds and clients per round are in Section 4, batch sizes, grids and best learning rates in the appendix.
    """

    results: Mapping[str, float]  # Section 5, table of validation performance, in the unit of the table
    # appendix, table of test set performance for Stack Overflow: the full test set after training
    test_results: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Task:
    """A learning problem. `fedopt.own_task` returns one.

    The keyword arguments of `federation`, `prepare`, `model` and `loss` are the task's configuration options.

    Attributes:
        name: the name in the configuration and in reports.
        what: one line for listings.
        federation: a function of a source and data options that returns the clients and the test set.
        model: a function that builds the module.
        prepare: a function that makes a batch from examples; the generator is for augmentation in training.
        loss: a function of outputs and targets that returns the loss of each example, or their mean.
        metrics: functions of outputs and targets that return a numerator and a denominator of each example.
            The first is the main metric; without any, it is the loss.
        reduction: of the loss over a batch, "mean" or "sum"; the published rates were tuned for it.
        better: whether a "higher" or a "lower" metric is better.
        clients_per_round: default if there are no settings.
        eval_sample: number of examples of the test set that are used during training; 0 means all.
        full_test_at_end: whether a run on real data ends with the full test set.
        tokens: counts the tokens of examples, for weighting=tokens.
        settings: default settings, grids and best rates.
        choices: allowed values of options, by key.
        touched: returns the rows of the first parameter that some examples use, for sparse models.
        penalty: a function of the module that is added to the objective, not to the logged loss.
    """

    name: str
    what: str
    federation: Callable[..., Federation]
    model: Callable[..., nn.Module]
    prepare: Prepare
    loss: Loss
    metrics: Mapping[str, Metric]
    reduction: str = "mean"
    better: str = "higher"
    clients_per_round: int = 10
    eval_sample: int = 0
    full_test_at_end: bool = False
    tokens: Callable[[tuple[Tensor, ...]], int] | None = None
    settings: TaskSettings | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    touched: Touched | None = None
    penalty: Callable[[nn.Module], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name in _RECORDED:
                raise ModelError(
                    f"a metric cannot have the name {name!r}, which metrics.jsonl uses; choose another name",
                    what="metrics",
                )

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.what}, metric {self.metric})"  # without the data

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return next(iter(self.metrics), "loss")

    @property
    def paper(self) -> PaperSettings | None:
        """The paper's settings, or None for a task that is not in the paper."""
        return self.settings if isinstance(self.settings, PaperSettings) else None
