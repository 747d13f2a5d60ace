"""What a task is: data, model, loss, metrics and, for the paper's tasks, its settings as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.data import Arrays, Federation

Batch = tuple[Tensor, Tensor]  # inputs and targets
# (raw examples of a batch, generator for augmentation in training or None, **options) -> inputs and targets
Prepare = Callable[..., Batch]
# (outputs, targets, **options) -> the loss of each example, or its mean over the batch as a scalar
Loss = Callable[..., Tensor]
# (outputs, targets) -> numerator and denominator of each example; the metric is sum / sum
Metric = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# (a client's examples, rows of the model's first parameter) -> the rows that they touch, ascending, and the
# examples with these rows numbered anew: what a model with only these rows makes of them is the same
Touched = Callable[[Arrays, int], tuple[NDArray[np.int64], Arrays]]


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


@dataclass(frozen=True)
class PaperSettings:
    """What the paper prints about a task: settings, grids, best rates, and the results to compare with."""

    rounds: int  # Section 4 and the appendix on hyperparameters
    clients_per_round: int
    batch_size: int  # appendix, table of per-task batch sizes
    client_grid: LogRange  # appendix, hyperparameter grids
    server_grid: LogRange
    rates: Mapping[str, Rates]  # appendix, tables of the best learning rates and of the best tau
    results: Mapping[str, float]  # Section 5, table of validation performance, in the table's own unit
    tau_grid: LogRange = LogRange(-5, -1, 1)
    # appendix, table of test set performance for Stack Overflow: the full test set after training
    test_results: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One problem. Options of data, preparation, model and loss are their functions' keyword arguments."""

    name: str
    what: str
    federation: Callable[..., Federation]  # (source, **data options)
    model: Callable[..., nn.Module]  # (**model options)
    prepare: Prepare
    loss: Loss
    metrics: Mapping[str, Metric]  # the first is the headline
    reduction: str = "mean"  # of the loss over a batch: the published rates were tuned for it
    better: str = "higher"
    clients_per_round: int = 10  # where no paper says otherwise
    eval_sample: int = 0  # examples of the test set used during training; 0 is all of them
    full_test_at_end: bool = False  # whether a run on real data ends with the full test set
    tokens: Callable[[tuple[Tensor, ...]], int] | None = None  # for weighting by tokens
    paper: PaperSettings | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of options that are names
    touched: Touched | None = None  # for models of which a client touches a small part
    penalty: Callable[[nn.Module], Tensor] | None = None  # added to the objective, not to the logged loss

    @property
    def metric(self) -> str:
        return next(iter(self.metrics))
