"""The gradients of all clients of a stack, by `torch.func.vmap` over stacked parameters and batches.

Batches of different size are padded to a common size. A padded row is a copy of the first row and has weight
zero in the mean loss. If the loss of a batch is one number, the mean of the losses of its rows replaces it in
padded batches. This is exact only if rows do not depend on each other. A step therefore also computes the
loss of every row alone, and returns the difference to the loss of all rows, padding included, so that the
caller can reject a padded batch. Full batches use the loss as written. Gradients are compared too, because
different losses can have equal values.

The step is traced once for each shape: `make_fx` records the tensor operations of model, loss, gradient and
update as a graph. The graph runs without the overhead of `vmap` and autograd, or is compiled.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from fedopt.algorithms.base import Vector
from fedopt.engine.initial_model import build_module
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.dropout import DropoutMasks, replace_dropout
from fedopt.models.capabilities import HasBasicOperations
from fedopt.models.fixed_state import fixed_tensors
from fedopt.models.flat import Flat
from fedopt.tasks.batch import call_model
from fedopt.tasks.per_example import is_per_example

# How the mean loss of a batch is computed from its rows.
#   "each"   the loss has one value for each example
#   "mean"   the loss of a batch is the mean of the losses of its examples
#   "batch"  only the loss of the whole batch is defined, so that batches cannot be padded
RowLosses = Literal["each", "mean", "batch"]
_SMALLEST_SCALE = 1e-2  # of the gradients of rows; smaller differences can be rounding


class StackedBatch(NamedTuple):
    """One batch of each client of a stack."""

    inputs: Tensor  # (clients, rows, ...)
    targets: Tensor  # (clients, rows, ...)
    counts: Tensor  # (clients,) number of examples; the rows after them are padding; 0: no batch
    masks: tuple[Tensor, ...] = ()  # of the dropout layers, (clients, rows, ...)

    def to(self, device: torch.device) -> StackedBatch:
        """Return the batch on a device."""
        inputs, targets, counts = (a.to(device) for a in (self.inputs, self.targets, self.counts))
        return StackedBatch(inputs, targets, counts, tuple(mask.to(device) for mask in self.masks))


class StepResult(NamedTuple):
    """The result of a step of all clients."""

    value: Tensor  # (clients, d): the gradients, or x_i after a step of SGD
    losses: Tensor  # (clients,): mean loss of each batch
    # (clients,): relative difference between the loss of all rows and that of single rows; None: rows are
    # known to be independent
    errors: Tensor | None = None


Step = Callable[..., StepResult]


class _Objective(nn.Module):
    """The training objective of one client as a module, with given dropout masks."""

    def __init__(self, problem: Problem, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.row_losses: RowLosses = "each"
        self._problem = problem
        self._masks: list[Tensor] = []
        for layer in list(module.modules()):
            if isinstance(layer, HasBasicOperations):
                layer.use_basic_operations()
        replace_dropout(module, self._masks)

    def losses(self, inputs: Tensor, targets: Tensor, masks: tuple[Tensor, ...]) -> Tensor:
        """Return what the loss returns."""
        self._masks[:] = masks
        return self._problem.losses(call_model(self.module, inputs), targets)

    def forward(
        self, inputs: Tensor, targets: Tensor, count: Tensor, masks: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the objective on the first `count` rows, the mean loss and, if checked, its error."""
        self._masks[:] = masks
        errors: list[Tensor] = []

        def mean_loss(outputs: Any, targets: Any) -> Tensor:
            if self._needs_check:
                errors.append(self._error(outputs, targets, count))
            return self._mean_loss(outputs, targets, count)

        objective, mean = self._problem.objective(self.module, inputs, targets, count, mean_loss)
        if self._masks:
            raise RuntimeError("the number of calls of the dropout layers varies")
        return objective, (mean, *errors)

    @property
    def _needs_check(self) -> bool:
        """Return whether padded batches are checked, because rows of the loss may depend on each other."""
        return self.row_losses != "batch" and not is_per_example(self._problem.loss)

    def _mean_loss(self, outputs: Any, targets: Tensor, count: Tensor) -> Tensor:
        rows = len(targets)
        if self.row_losses == "batch":
            return self._problem.losses(outputs, targets).mean()
        weights = (torch.arange(rows, device=count.device) < count) / count.clamp(min=1)
        if self.row_losses == "each":
            return (self._losses_in_batch(outputs, targets) * weights).sum()
        of_rows = (self._losses_alone(outputs, targets) * weights).sum()
        of_batch = self._problem.losses(outputs, targets).mean()
        return torch.where(count == rows, of_batch, of_rows)

    def _losses_in_batch(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of each row, or the loss of the batch if it is one number."""
        losses = self._problem.losses(outputs, targets)
        return losses.reshape(len(targets), -1).mean(1) if self.row_losses == "each" else losses.mean()

    def _losses_alone(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of each row as a batch of its own."""
        loss = self._problem.losses
        return vmap(lambda output, target: loss(output[None], target[None]).mean())(outputs, targets)

    def _error(self, outputs: Any, targets: Tensor, count: Tensor) -> Tensor:
        """Return how much values and gradients of the losses of a padded batch depend on other rows."""

        def in_batch(outputs: Any) -> tuple[Tensor, Tensor]:
            losses = self._losses_in_batch(outputs, targets)
            return losses.mean() * len(targets), losses

        def alone(outputs: Any) -> tuple[Tensor, Tensor]:
            losses = self._losses_alone(outputs, targets)
            return losses.sum(), losses if self.row_losses == "each" else losses.mean()

        outputs = tree_map(Tensor.detach, outputs)
        expected, values = grad(in_batch, has_aux=True)(outputs)
        actual, others = grad(alone, has_aux=True)(outputs)
        errors = [_relative_error(values, others, 1.0)]
        for one, other in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
            errors.append(_relative_error(one, other, _SMALLEST_SCALE))
        # Training has diverged if both are not finite.
        has_diverged = ~(values.mean().isfinite() | others.mean().isfinite())
        is_exact = has_diverged | (count == len(targets))  # full batches use the loss as written
        return torch.where(is_exact, 0.0, torch.stack(errors).max()).to(count.dtype).detach()


def _relative_error(expected: Tensor, actual: Tensor, smallest: float) -> Tensor:
    """Return the largest difference divided by the largest element. It is infinite if one is not finite."""
    difference = (expected - actual).abs().max() / (smallest + expected.abs().max())
    return difference.nan_to_num(nan=float("inf"), posinf=float("inf"))


class StackedModel:
    """The model of one problem, evaluated for many parameter vectors at once.

    With `separate_updates`, a step of SGD updates each parameter with operations of its own. A compiler can
    then write the result without storing the gradient. Otherwise fewer operations are faster.
    """

    def __init__(self, problem: Problem, device: str, *, separate_updates: bool = False) -> None:
        module = build_module(problem)
        self.masks = DropoutMasks(copy.deepcopy(module))
        self.flat = Flat(module.to(device), problem.buffers)
        self.flat.train()
        fixed = {name: t.detach() for name, t in fixed_tensors(module).items()}
        self.objective = _Objective(problem, module)
        self._separate_updates = separate_updates
        self._names = [f"module.{name}" for name in self.flat.names]
        self._fixed_names = [f"module.{name}" for name in fixed]
        self.fixed = tuple(fixed.values())  # inputs of every traced step, after those of the batch

    def gradient(self, x: Vector, batch: StackedBatch) -> StepResult:
        """Return the gradient of each client at its row of `x`; zero for clients without a batch."""
        return StepResult(*self.function(None)(*self.arguments(x, batch)))

    def function(self, eta_l: Tensor | None) -> Callable[..., tuple[Tensor, ...]]:
        """Return `gradient`, or with `eta_l` a step of SGD, as a function of `arguments`."""
        function = self._gradient if eta_l is None else self._sgd_step

        def strict(*arguments: Tensor) -> tuple[Tensor, ...]:
            with _strict_vmap():
                return function(*arguments)

        return strict

    def trace(self, x: Vector, batch: StackedBatch, eta_l: Tensor | None = None) -> GraphModule:
        """Record the step for these shapes as a graph: `gradient`, or with `eta_l` a step of SGD."""
        with torch.no_grad(), _one_fake_mode():
            graph = make_fx(self.function(eta_l))(*self.arguments(x, batch, eta_l))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return graph

    def arguments(self, x: Vector, batch: StackedBatch, eta_l: Tensor | None = None) -> list[Tensor]:
        """Return the inputs of a traced step, in order."""
        rate = [] if eta_l is None else [eta_l]
        return [x, *rate, batch.inputs, batch.targets, batch.counts, *batch.masks, *self.fixed]

    def _sgd_step(self, x: Vector, eta_l: Tensor, *batch: Tensor) -> tuple[Tensor, ...]:
        if not self._separate_updates:
            gradient, *rest = self._gradient(x, *batch)
            return x - eta_l * gradient, *rest
        gradients, present, statistics = self._gradients(x, *batch)
        updated = [
            part - eta_l * torch.where(present, g, 0)
            for part, g in zip(torch.split(x, self.flat.sizes, dim=1), gradients, strict=True)
        ]
        return torch.cat(updated, dim=1), *statistics

    def _gradient(self, x: Vector, *batch: Tensor) -> tuple[Tensor, ...]:
        gradients, present, statistics = self._gradients(x, *batch)
        return torch.where(present, torch.cat(gradients, dim=1), 0), *statistics

    def _gradients(
        self, x: Vector, inputs: Tensor, targets: Tensor, counts: Tensor, *others: Tensor
    ) -> tuple[list[Tensor], Tensor, Sequence[Tensor]]:
        """Return the gradient of each parameter, which clients have a batch, and the losses and errors.

        A gradient has the shape (clients, size). A client without a batch must stay finite, whatever its
        padding gives.
        """
        split = len(others) - len(self.fixed)
        masks, fixed = others[:split], others[split:]
        shapes = [(len(x), *shape) for shape in self.flat.shapes]
        parameters = tuple(map(Tensor.view, torch.split(x, self.flat.sizes, dim=1), shapes))
        gradients, (_, statistics) = vmap(
            grad_and_value(self._call, has_aux=True), in_dims=(0, 0, 0, 0, 0, None)
        )(parameters, inputs, targets, counts, masks, fixed)
        return [g.reshape(len(x), -1) for g in gradients], (counts > 0)[:, None], statistics

    def _call(
        self,
        parameters: tuple[Tensor, ...],
        inputs: Tensor,
        targets: Tensor,
        count: Tensor,
        masks: Any,
        fixed: Any,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        named = dict(zip([*self._names, *self._fixed_names], [*parameters, *fixed], strict=True))
        value: tuple[Tensor, tuple[Tensor, ...]] = functional_call(
            self.objective, named, (inputs, targets, count, masks)
        )
        return value


@contextmanager
def _one_fake_mode() -> Iterator[None]:
    """Let `make_fx` describe the shapes of all tensors in one mode.

    By default it creates a mode for each tensor, which takes up to half of the time of a trace. The graph is
    the same.
    """
    with tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))):
        yield


@contextmanager
def _strict_vmap() -> Iterator[None]:
    """Raise an error if vmap has to run a loop over the clients, where torch only warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule")
        yield
