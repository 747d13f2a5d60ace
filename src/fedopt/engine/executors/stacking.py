"""The gradients of several clients at once: `torch.func.vmap` over their stacked parameters and batches.

Clients differ in the sizes of their batches, and in the rows of the model that they touch. Both are filled
up to a common size where that changes nothing, with rows that then count for nothing; where nobody vouches
for that, only what has the same shape is stacked.
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
from fedopt.engine.worker import seeded
from fedopt.models.emnist import Autoencoder, CharacterCNN
from fedopt.models.flat import Flat
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import LSTM, NextCharacter, NextWord
from fedopt.models.resnet import ResNet18
from fedopt.models.sparse_rows import Part

# Models in which an example's output depends on that example alone, so that a batch may get further rows.
_ROW_BY_ROW = (Autoencoder, CharacterCNN, NextCharacter, NextWord, ResNet18, TagRegression)
# Models whose inputs may get further columns of zeros.
_PADDED = (TagRegression,)


class Question(NamedTuple):
    """What a client wants to know: the gradient at `x`, of which it may have a part, on a batch."""

    x: Vector
    part: Part | None
    inputs: Tensor
    targets: Tensor
    masks: tuple[Tensor, ...]  # of its dropout layers


Answer = tuple[Vector, Tensor]  # the gradient, and the batch's mean loss


class _Given(nn.Module):
    """In the place of a dropout layer: the masks that were drawn before, in the order of the calls."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self._masks = masks

    def forward(self, x: Tensor) -> Tensor:
        return x * self._masks.pop(0) if self.training else x


class _Objective(nn.Module):
    """What `ClientWork.gradient` differentiates, of a batch in which rows may count for nothing."""

    def __init__(self, problem: Problem, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._problem = problem
        self._masks: list[Tensor] = []
        for layer in list(module.modules()):
            if isinstance(layer, LSTM | TagRegression):
                layer.fused = False
            for name, child in layer.named_children():
                if isinstance(child, _DropoutNd):
                    setattr(layer, name, _Given(self._masks))

    def losses(self, inputs: Tensor, targets: Tensor, masks: Sequence[Tensor]) -> Tensor:
        self._masks[:] = masks
        losses: Tensor = self._problem.loss(self.module(inputs), targets)
        if self._masks:
            raise RuntimeError("the model calls its dropout layers now more often, now less")
        return losses

    def forward(
        self, inputs: Tensor, targets: Tensor, masks: Sequence[Tensor], n: Tensor, share: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The objective and the mean loss; `share` is each row's share in the mean of `n` rows."""
        losses = self.losses(inputs, targets, masks)
        mean = losses.mean() if share is None else (losses * share).sum()
        objective = mean * n if self._problem.reduction == "sum" else mean
        if self._problem.penalty is not None:
            objective = objective + self._problem.penalty(self.module)
        return objective, mean.detach()


class Masks:
    """Draws the dropout masks of a batch as the model itself would: in its order, shapes and layouts."""

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
        """Which layers the model calls, and with what: ones instead of numbers turn them into masks."""
        calls: list[tuple[nn.Module, Tensor]] = []

        def note(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            calls.append((layer, torch.ones_like(arguments[0])))

        hooks = [layer.register_forward_pre_hook(note) for layer in self._layers]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            self._module(inputs)
        for hook in hooks:
            hook.remove()
        return calls


class Stack:
    """The model of one problem, for many parameter vectors at once."""

    def __init__(self, problem: Problem, device: str) -> None:
        with seeded(problem.seed, "init"):
            module = problem.model()
        self.masks = Masks(copy.deepcopy(module))
        self._flat = Flat(module.to(device), problem.buffers)
        self._flat.train()
        self._objective = _Objective(problem, module)
        self._names = [f"module.{name}" for name in self._flat.names]
        self._fills = False  # whether batches of different sizes may be stacked

    def learn(self, inputs: Tensor, targets: Tensor) -> int:
        """Look at one batch: the floats that its forward pass holds, and whether it may be filled up."""
        held: dict[int, int] = {}  # by place in memory: a recurrent layer holds its weights at every step

        def count(t: Tensor) -> Tensor:
            storage = t.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes() // 4
            return t

        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            losses = self._objective.losses(inputs, targets, self.masks.draw(inputs))
        by_example = losses.shape == targets.shape[:1]
        self._fills = type(self._flat.module) in _ROW_BY_ROW and by_example
        return sum(held.values())

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """One for each question, in their order; those of the same form are computed at once."""
        groups: dict[Any, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(self._form(question), []).append(place)
        found: dict[int, Answer] = {}
        with warnings.catch_warnings():  # what vmap does one by one, we do one by one as well
            warnings.filterwarnings("error", message=".*batching rule")
            for places in groups.values():
                found |= zip(places, self._together([questions[place] for place in places]), strict=True)
        return [found[place] for place in range(len(questions))]

    def _form(self, question: Question) -> tuple[Any, ...]:
        """What questions must share to be stacked."""
        arrays = (question.inputs, question.targets, *question.masks)
        if type(self._flat.module) in _PADDED and self._fills:
            arrays = arrays[1:]
        first = 1 if self._fills else 0
        return tuple((a.shape[first:], a.dtype) for a in arrays)

    def _together(self, questions: Sequence[Question]) -> list[Answer]:
        sizes = [len(q.targets) for q in questions]
        tables = [
            self._flat.sizes[0] if q.part is None else torch.Size(q.part.shape).numel() for q in questions
        ]
        rows, table = max(sizes), max(tables)
        xs = torch.stack([_insert(q.x, at, table) for q, at in zip(questions, tables, strict=True)])
        n = xs.new_tensor(sizes)
        share = None
        if min(sizes) < rows:
            share = (torch.arange(rows, device=xs.device) < n[:, None]) / n[:, None]
        gradients, (_, means) = vmap(
            grad_and_value(self._value, has_aux=True), in_dims=(0, 0, 0, 0, 0, None if share is None else 0)
        )(
            self._parameters(xs, table),
            torch.stack([_filled(a, rows) for a in self._inputs(questions)]),
            torch.stack([_filled(q.targets, rows) for q in questions]),
            tuple(
                torch.stack([_filled(m, rows) for m in masks])
                for masks in zip(*(q.masks for q in questions), strict=True)
            ),
            n,
            share,
        )
        flat = torch.cat([g.reshape(len(xs), -1) for g in gradients], dim=1)
        cut = (_remove(g, at, table) for g, at in zip(flat, tables, strict=True))
        return list(zip(cut, means, strict=True))

    def _parameters(self, xs: Tensor, table: int) -> tuple[Tensor, ...]:
        """Views of the stacked vectors; the first parameter has as many rows as make up `table` numbers."""
        first = self._flat.shapes[0]
        if table != self._flat.sizes[0]:
            first = torch.Size([table // first[1:].numel(), *first[1:]])
        values = torch.split(xs, [table, *self._flat.sizes[1:]], dim=1)
        shapes = [first, *self._flat.shapes[1:]]
        return tuple(v.view(len(xs), *shape) for v, shape in zip(values, shapes, strict=True))

    def _inputs(self, questions: Sequence[Question]) -> list[Tensor]:
        if type(self._flat.module) not in _PADDED:
            return [q.inputs for q in questions]
        columns = max(q.inputs.shape[1] for q in questions)
        return [F.pad(q.inputs, (0, columns - q.inputs.shape[1])) for q in questions]

    def _value(self, parameters: tuple[Tensor, ...], *batch: Any) -> tuple[Tensor, Tensor]:
        named = dict(zip(self._names, parameters, strict=True))
        value: tuple[Tensor, Tensor] = functional_call(self._objective, named, batch)
        return value


def _filled(a: Tensor, rows: int) -> Tensor:
    """Further rows, like the first: of numbers that can occur, and not finite only if the batch is not."""
    missing = rows - len(a)
    return torch.cat([a, a[:1].expand(missing, *a.shape[1:])]) if missing else a


def _insert(x: Vector, at: int, until: int) -> Vector:
    """Zeros from `at` to `until`: rows of the first parameter that others touch."""
    return x if at == until else torch.cat([x[:at], x.new_zeros(until - at), x[at:]])


def _remove(x: Vector, at: int, until: int) -> Vector:
    return x if at == until else torch.cat([x[:at], x[until:]])
