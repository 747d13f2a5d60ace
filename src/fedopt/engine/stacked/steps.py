"""The steps of a stack: traced once for each shape if that saves time, and compiled on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedopt.algorithms.base import Vector
from fedopt.engine.stacked.compiling import compile_graph
from fedopt.engine.stacked.model import StackedBatch, StackedModel, StepResult
from fedopt.engine.stacked.products import sum_small_products

_Step = Callable[[list[Tensor]], Sequence[Tensor]]


class StackedSteps:
    """Computes gradients and steps of SGD for all clients of a stack."""

    def __init__(self, model: StackedModel, *, traces: bool, compiles: bool) -> None:
        self._model = model
        self._traces = traces
        self._compiles = compiles
        self._built: dict[tuple[object, ...], _Step] = {}

    @property
    def pads_batches(self) -> bool:
        """Return whether batches of different size are padded. Otherwise they are computed separately."""
        return self._model.objective.row_losses != "batch"

    def gradient(self, x: Vector, batch: StackedBatch) -> StepResult:
        """Return the gradient of each client at its row of `x`; zero for clients without a batch."""
        if not self.pads_batches:
            return self._grouped_gradient(x, batch)
        arguments = self._model.arguments(x, batch)
        return StepResult(*self._find(x, batch, None, arguments)(arguments))

    def descend(self, x: Vector, batch: StackedBatch, eta_l: Tensor) -> StepResult:
        """Return x - eta_l g, if batches are padded."""
        arguments = self._model.arguments(x, batch, eta_l)
        return StepResult(*self._find(x, batch, eta_l, arguments)(arguments))

    def _find(
        self, x: Vector, batch: StackedBatch, eta_l: Tensor | None, arguments: Sequence[Tensor]
    ) -> _Step:
        """Return the step for arguments of these shapes."""
        key = (eta_l is None, *((a.shape, a.stride(), a.dtype) for a in arguments))
        if key not in self._built:
            self._built[key] = self._build(x, batch, eta_l, arguments)
        return self._built[key]

    def _build(
        self, x: Vector, batch: StackedBatch, eta_l: Tensor | None, arguments: Sequence[Tensor]
    ) -> _Step:
        if not self._traces:
            return _with_list(self._model.function(eta_l))
        graph = self._model.trace(x, batch, eta_l)
        if not self._compiles:
            return _with_list(graph)
        sum_small_products(graph)
        return compile_graph(graph, arguments)

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
        return StepResult(value, losses)


def _with_list(graph: Callable[..., Sequence[Tensor]]) -> _Step:
    """Return the function with one argument, a list."""
    return lambda arguments: graph(*arguments)
