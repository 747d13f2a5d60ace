"""The steps of a stack: traced once for each shape, and compiled on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedopt.algorithms.base import Vector
from fedopt.engine.stacked.compiling import compile_graph
from fedopt.engine.stacked.model import StackedBatch, StackedModel, StepResult


class StackedSteps:
    """Computes gradients and steps of SGD for all clients of a stack."""

    def __init__(self, model: StackedModel, *, traces: bool, compiles: bool) -> None:
        self._model = model
        self._traces = traces
        self._compiles = compiles
        self._traced: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @property
    def pads_batches(self) -> bool:
        """Return whether batches of different size are padded. Otherwise they are computed separately."""
        return self._model.objective.row_losses != "batch"

    def gradient(self, x: Vector, batch: StackedBatch) -> StepResult:
        """Return the gradient of each client at its row of `x`; zero for clients without a batch."""
        if not self.pads_batches:
            return self._grouped_gradient(x, batch)
        return self._run(x, batch, None) if self._traces else self._model.gradient(x, batch)

    def sgd_step(self, x: Vector, batch: StackedBatch, eta_l: Tensor) -> StepResult:
        """Return x - eta_l g for each client."""
        if self._traces:
            return self._run(x, batch, eta_l)
        result = self._model.gradient(x, batch)
        return result._replace(value=x - eta_l * result.value)

    def _run(self, x: Vector, batch: StackedBatch, eta_l: Tensor | None) -> StepResult:
        arguments = self._model.arguments(x, batch, eta_l)
        key = (eta_l is None, *((a.shape, a.dtype) for a in arguments))
        step = self._traced.get(key)
        if step is None:
            graph = self._model.trace(x, batch, eta_l)
            step = self._traced[key] = compile_graph(graph, arguments) if self._compiles else graph
        return StepResult(*step(*arguments))

    def _grouped_gradient(self, x: Vector, batch: StackedBatch) -> StepResult:
        """Compute clients with the same number of examples together, without padding."""
        value, losses = torch.zeros_like(x), x.new_zeros(len(x))
        for count in sorted(set(batch.counts.int().tolist())):
            if count == 0:
                continue
            rows = (batch.counts == count).nonzero()[:, 0]
            inputs, targets, *masks = (a[rows, :count] for a in (batch.inputs, batch.targets, *batch.masks))
            group = StackedBatch(inputs, targets, batch.counts[rows], tuple(masks))
            result = self._model.gradient(x[rows], group)
            value[rows], losses[rows] = result.value, result.losses
        return StepResult(value, losses, torch.zeros_like(losses))
