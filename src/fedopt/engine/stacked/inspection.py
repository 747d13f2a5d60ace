"""Decide how the batches of a problem can be stacked.

The decision depends on the problem only. It is made with examples of the largest client: the gradient of a
stack with padded batches must equal the gradient that a single client computes.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedopt import rng
from fedopt.data import Arrays, Split
from fedopt.engine.client import tensors
from fedopt.engine.initial_model import build_module
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.model import RowLosses, StackedBatch, StackedModel
from fedopt.engine.torch_state import generator_states, seeded
from fedopt.errors import one_line
from fedopt.models.flat import Flat
from fedopt.tasks.batch import Batch

MAX_TRACED_OPERATIONS = 100  # tensors that a forward pass saves; about one for each operation
LOSS_TOLERANCE = 1e-4  # relative, between the losses of rows in a batch and those of single rows
_MAX_ROWS = 16  # of the batches that are compared
_TOLERANCE = 1e-3  # relative; a wrong padding changes the gradient by more than 1 / _MAX_ROWS


class StackingPlan(NamedTuple):
    """How the batches of a problem are stacked. With a `reason`, they cannot be."""

    reason: str = ""
    row_losses: RowLosses = "each"
    prepares_rows: bool = False  # `prepare` treats each example alone and without random numbers
    saved_floats: int = 0  # numbers that autograd saves for one example
    example_floats: int = 0  # numbers of one example and its dropout masks
    flops: int = 0  # floating-point operations of the forward pass for one example
    is_traced: bool = True  # tracing saves time; False for models with many operations, where it takes long


def largest_client(split: Split) -> int:
    """Return the position of the largest client."""
    return int(np.argmax(split.sizes))


def inspect(problem: Problem, model: StackedModel, arrays: Arrays) -> StackingPlan:
    """Determine the plan with the examples `arrays`. It also sets `model.objective.row_losses`."""
    try:
        with seeded(problem.seed, "inspect"):
            return _inspect(problem, model, Flat(build_module(problem), problem.buffers), arrays)
    except Exception as error:  # of the user's model, loss or data; training one client names the client
        return StackingPlan(one_line(error))


def _inspect(problem: Problem, model: StackedModel, single: Flat, arrays: Arrays) -> StackingPlan:
    n = len(arrays[0])
    single.train()
    rows = np.arange(max(3, min(n, problem.local.batch_size, _MAX_ROWS))) % n
    draw, before = rng.generator(problem.seed, "inspect"), generator_states()
    inputs, targets = problem.prepare(tensors(arrays, rows), draw)
    if generator_states() != before:
        return StackingPlan("batches are prepared with global random generators")
    if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
        return StackingPlan("the inputs or targets are nested")
    prepares_rows = _prepares_rows(problem, arrays, rows)
    with seeded(problem.seed, "inspect"):
        masks = model.masks.draw(inputs)
    saved, operations, flops, has_row_losses = _forward(
        model, StackedBatch(inputs, targets, torch.empty(0), masks)
    )
    numbers = sum(part[0].numel() for part in (inputs, targets, *masks))
    is_traced = operations <= MAX_TRACED_OPERATIONS
    saved, flops = -(-saved // len(rows)), -(-flops // len(rows))
    plan = StackingPlan("", "each", prepares_rows, saved, numbers, flops, is_traced)
    for row_losses in get_args(RowLosses):
        if (row_losses == "each") != has_row_losses and row_losses != "batch":
            continue
        model.objective.row_losses = row_losses
        if _equals_single(problem, model, single, (inputs, targets), is_traced):
            single.check_tensors()
            model.flat.check_tensors()
            return plan._replace(row_losses=row_losses)
    return StackingPlan("the gradients of stacked clients differ from those of single clients")


def _prepares_rows(problem: Problem, arrays: Arrays, rows: np.ndarray) -> bool:
    """Return whether preparing some rows equals preparing all and taking these rows."""
    draw = rng.generator(problem.seed, "inspect")
    before = str(draw.bit_generator.state)
    whole = problem.prepare(tensors(arrays, rows), draw)
    for part in (slice(0, 1), slice(1, None), slice(None, None, -1)):
        some = problem.prepare(tensors(arrays, rows[part]), draw)
        index = torch.arange(len(rows)).numpy()[part].copy()
        for a, b in zip(whole, some, strict=True):
            same = a[index]
            if same.shape != b.shape or same.dtype != b.dtype or not torch.equal(_bits(same), _bits(b)):
                return False
    return str(draw.bit_generator.state) == before


def _bits(a: Tensor) -> Tensor:
    """Return the bytes of a tensor, so that NaN equals itself."""
    return a.contiguous().view(torch.uint8) if a.ndim else a[None].view(torch.uint8)


def _forward(model: StackedModel, batch: StackedBatch) -> tuple[int, int, int, bool]:
    """Run a forward pass.

    Return how many floats and how many tensors it saves for the backward pass, the number of operations of
    its products, and whether the loss has a value for each example.
    """
    saved: dict[int, int] = {}  # by address: a recurrent layer saves its weights at every step
    tensors = 0

    def count(t: Tensor) -> Tensor:
        nonlocal tensors
        tensors += 1
        storage = t.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes() // 4
        return t

    device = model.flat.parameters[0].device
    inputs, targets, *masks = (a.to(device) for a in (batch.inputs, batch.targets, *batch.masks))
    counter = FlopCounterMode(display=False)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t), counter:
        losses = model.objective.losses(inputs, targets, tuple(masks))
    return sum(saved.values()), tensors, counter.get_total_flops(), losses.shape[:1] == targets.shape[:1]


def _equals_single(
    problem: Problem, model: StackedModel, single: Flat, batch: Batch, is_traced: bool
) -> bool:
    """Return whether a stack of two clients, one with fewer rows, has the gradients of single clients."""
    inputs, targets = batch
    rows, device = len(targets), model.flat.parameters[0].device
    counts = (rows, rows) if model.objective.row_losses == "batch" else (rows, rows - 2)
    x_0 = single.read()
    noise = torch.from_numpy(rng.generator("inspect", "noise").normal(size=(2, single.d)))
    x = x_0 + (0.01 * noise).to(x_0)
    expected, masks = [], []
    for x_i, count in zip(x, counts, strict=True):
        with seeded(problem.seed, "inspect"):
            single.bind(x_i.clone())
            objective, _ = problem.objective(single.module, inputs[:count], targets[:count], count)
            gradients = torch.autograd.grad(objective, single.parameters, materialize_grads=True)
        expected.append(torch.cat([g.reshape(-1) for g in gradients]))
        with seeded(problem.seed, "inspect"):
            drawn = model.masks.draw(inputs[:count])
        if any(len(mask) != count for mask in drawn):
            raise RuntimeError("the first dimension of a dropout mask is not the batch")
        masks.append([pad_rows(mask, rows) for mask in drawn])
    stacked = StackedBatch(
        torch.stack([inputs, pad_rows(inputs[: counts[1]], rows)]),
        torch.stack([targets, pad_rows(targets[: counts[1]], rows)]),
        x.new_tensor(counts),
        tuple(torch.stack(pair) for pair in zip(*masks, strict=True)),
    )
    x, stacked = x.to(device), stacked.to(device)
    before = generator_states()
    result = model.gradient(x, stacked)
    if generator_states() != before:
        raise RuntimeError("the model draws random numbers outside of dropout layers")
    if any(a._version for a in (x, stacked.inputs, stacked.targets)):
        raise RuntimeError("the model changes its parameters or inputs in place")
    actual = result.value.cpu()
    if is_traced and model.trace(x, stacked).code != model.trace(x, stacked).code:
        raise RuntimeError("the model computes something else in every call")
    single.bind(x_0)
    errors = (actual - torch.stack(expected)).norm(dim=1)
    equals = (errors <= _TOLERANCE * torch.stack(expected).norm(dim=1)).all()
    return bool(equals) and (result.errors is None or bool(result.errors.max() <= LOSS_TOLERANCE))


def pad_rows(a: Tensor, rows: int) -> Tensor:
    """Pad with copies of the first row: valid values, and finite if the batch is finite."""
    missing = rows - len(a)
    return torch.cat([a, a[:1].expand(missing, *a.shape[1:])]) if missing else a
