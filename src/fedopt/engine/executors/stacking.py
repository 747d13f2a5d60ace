"""The gradients of several clients at once: `torch.func.vmap` over their stacked parameters and batches.

Clients differ in their batch sizes and in the rows of the model that they train. If the model declares that
this is exact (see `models.capabilities`), batches and inputs are padded to a common size, and padded rows
have weight zero. Otherwise only requests with equal shapes are stacked.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.dropout import _DropoutNd

from fedopt.algorithms.base import Vector
from fedopt.engine.problem import Problem
from fedopt.engine.worker import build_module
from fedopt.models.capabilities import HasBasicOperations, declares
from fedopt.models.flat import Flat
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.batch import call_model


class GradientRequest(NamedTuple):
    """A client's request for the gradient on a batch at `x`."""

    x: Vector
    rows: SparseRows | None  # the rows of the model that `x` holds; None: all of them
    inputs: Tensor
    targets: Tensor
    masks: tuple[Tensor, ...]  # of the dropout layers


class GradientReply(NamedTuple):
    """The gradient, and the mean loss of the batch."""

    gradient: Vector
    loss: Tensor


class _FixedDropout(nn.Module):
    """Replaces a dropout layer. It applies masks that were drawn before, in the order of the calls."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self._masks = masks

    def forward(self, x: Tensor) -> Tensor:
        return x * self._masks.pop(0) if self.training else x


class _Objective(nn.Module):
    """The training objective as a module, with given dropout masks."""

    def __init__(self, problem: Problem, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._problem = problem
        self._masks: list[Tensor] = []
        for layer in list(module.modules()):
            if isinstance(layer, HasBasicOperations):
                layer.use_basic_operations()
            for name, child in layer.named_children():
                if isinstance(child, _DropoutNd):
                    setattr(layer, name, _FixedDropout(self._masks))

    def losses(self, inputs: Tensor, targets: Tensor, masks: Sequence[Tensor]) -> Tensor:
        self._masks[:] = masks
        return self._problem.loss(call_model(self.module, inputs), targets)

    def forward(
        self, inputs: Tensor, targets: Tensor, masks: Sequence[Tensor], n: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the objective and the mean loss of a batch of `n` examples with row `weights`."""
        self._masks[:] = masks
        result = self._problem.objective(self.module, inputs, targets, n, weights)
        if self._masks:
            raise RuntimeError("the number of calls of the dropout layers varies")
        return result


class DropoutMasks:
    """Draws the dropout masks of a batch exactly as the model would: in its order, shapes and layouts."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module.train()
        self._layers = [layer for layer in module.modules() if isinstance(layer, _DropoutNd)]
        self._calls: dict[tuple[Any, ...], list[tuple[nn.Module, Tensor]]] = {}

    def draw(self, inputs: Tensor) -> tuple[Tensor, ...]:
        if not self._layers:
            return ()
        key = (inputs.shape, inputs.dtype)
        if key not in self._calls:
            self._calls[key] = self._record(inputs.cpu())
        return tuple(layer(ones.clone()).to(inputs.device) for layer, ones in self._calls[key])

    def _record(self, inputs: Tensor) -> list[tuple[nn.Module, Tensor]]:
        """Record the calls of dropout layers. With ones as input, a layer returns its mask."""
        calls: list[tuple[nn.Module, Tensor]] = []

        def record(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            calls.append((layer, torch.ones_like(arguments[0])))

        hooks = [layer.register_forward_pre_hook(record) for layer in self._layers]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call_model(self._module, inputs)
        for hook in hooks:
            hook.remove()
        return calls


class StackedModel:
    """The model of one problem, evaluated for many parameter vectors at once."""

    def __init__(self, problem: Problem, device: str) -> None:
        module = build_module(problem)
        self.masks = DropoutMasks(copy.deepcopy(module))
        self._flat = Flat(module.to(device), problem.buffers)
        self._flat.train()
        self._objective = _Objective(problem, module)
        self._names = [f"module.{name}" for name in self._flat.names]
        self._pads_batches = False
        self._pads_inputs = declares(module, "zero_padded_inputs")

    def inspect(self, inputs: Tensor, targets: Tensor) -> int:
        """Determine whether batches can be padded. Return the floats that a forward pass saves."""
        saved: dict[int, int] = {}  # by address: a recurrent layer saves its weights at every step

        def count(t: Tensor) -> Tensor:
            storage = t.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes() // 4
            return t

        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            losses = self._objective.losses(inputs, targets, self.masks.draw(inputs))
        loss_per_example = losses.shape == targets.shape[:1]
        self._pads_batches = declares(self._flat.module, "independent_examples") and loss_per_example
        return sum(saved.values())

    def gradients(self, requests: Sequence[GradientRequest]) -> list[GradientReply]:
        """Return a reply to each request, in order. Requests with the same shapes are computed at once."""
        groups: dict[Any, list[int]] = {}
        for position, request in enumerate(requests):
            groups.setdefault(self._shapes(request), []).append(position)
        replies: dict[int, GradientReply] = {}
        with warnings.catch_warnings():  # vmap warns if it falls back to a loop; the executor has its own
            warnings.filterwarnings("error", message=".*batching rule")
            for group in groups.values():
                replies |= zip(group, self._stacked([requests[i] for i in group]), strict=True)
        return [replies[position] for position in range(len(requests))]

    def _shapes(self, request: GradientRequest) -> tuple[Any, ...]:
        """Return the shapes that requests must share to be stacked."""
        arrays = (request.inputs, request.targets, *request.masks)
        if self._pads_inputs and self._pads_batches:
            arrays = arrays[1:]
        first = 1 if self._pads_batches else 0
        return tuple((a.shape[first:], a.dtype) for a in arrays)

    def _stacked(self, requests: Sequence[GradientRequest]) -> list[GradientReply]:
        sizes = [len(r.targets) for r in requests]
        tables = [
            self._flat.sizes[0] if r.rows is None else torch.Size(r.rows.shape).numel() for r in requests
        ]
        rows, table = max(sizes), max(tables)
        xs = torch.stack([_insert(r.x, at, table) for r, at in zip(requests, tables, strict=True)])
        n = xs.new_tensor(sizes)
        weights = None
        if min(sizes) < rows:
            weights = (torch.arange(rows, device=xs.device) < n[:, None]) / n[:, None]
        gradients, (_, losses) = vmap(
            grad_and_value(self._call, has_aux=True), in_dims=(0, 0, 0, 0, 0, None if weights is None else 0)
        )(
            self._parameters(xs, table),
            torch.stack([_pad_rows(a, rows) for a in self._inputs(requests)]),
            torch.stack([_pad_rows(r.targets, rows) for r in requests]),
            tuple(
                torch.stack([_pad_rows(m, rows) for m in masks])
                for masks in zip(*(r.masks for r in requests), strict=True)
            ),
            n,
            weights,
        )
        flat = torch.cat([g.reshape(len(xs), -1) for g in gradients], dim=1)
        cut = (_remove(g, at, table) for g, at in zip(flat, tables, strict=True))
        return list(map(GradientReply, cut, losses))

    def _parameters(self, xs: Tensor, table: int) -> tuple[Tensor, ...]:
        """Return views of the stacked vectors. The first parameter has `table` elements."""
        first = self._flat.shapes[0]
        if table != self._flat.sizes[0]:
            first = torch.Size([table // first[1:].numel(), *first[1:]])
        values = torch.split(xs, [table, *self._flat.sizes[1:]], dim=1)
        shapes = [first, *self._flat.shapes[1:]]
        return tuple(v.view(len(xs), *shape) for v, shape in zip(values, shapes, strict=True))

    def _inputs(self, requests: Sequence[GradientRequest]) -> list[Tensor]:
        if not self._pads_inputs:
            return [r.inputs for r in requests]
        columns = max(r.inputs.shape[1] for r in requests)
        return [F.pad(r.inputs, (0, columns - r.inputs.shape[1])) for r in requests]

    def _call(self, parameters: tuple[Tensor, ...], *batch: Any) -> tuple[Tensor, Tensor]:
        named = dict(zip(self._names, parameters, strict=True))
        value: tuple[Tensor, Tensor] = functional_call(self._objective, named, batch)
        return value


def _pad_rows(a: Tensor, rows: int) -> Tensor:
    """Pad with copies of the first row: valid values, and finite if the batch is finite."""
    missing = rows - len(a)
    return torch.cat([a, a[:1].expand(missing, *a.shape[1:])]) if missing else a


def _insert(x: Vector, start: int, stop: int) -> Vector:
    """Insert zeros from `start` to `stop`: rows of the first parameter that only other clients train."""
    return x if start == stop else torch.cat([x[:start], x.new_zeros(stop - start), x[start:]])


def _remove(x: Vector, start: int, stop: int) -> Vector:
    return x if start == stop else torch.cat([x[:start], x[stop:]])
