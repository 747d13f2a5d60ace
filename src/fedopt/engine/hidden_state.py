"""Refuse models with hidden state: a pass may depend on weights, buffers, batch and seed only.

Otherwise results depend on what a process has computed before: on the executor, the number of workers, the
rounds of evaluations and interruptions.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import islice

import torch
from torch import Tensor

from fedopt.algorithms.base import Vector
from fedopt.engine.client import ClientWork
from fedopt.engine.initial_model import build_module
from fedopt.engine.problem import Problem
from fedopt.engine.torch_state import seeded
from fedopt.errors import ModelError
from fedopt.models.flat import Flat
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.batch import Batch, call_model, map_tensors


def check_passes(
    problem: Problem, flat: Flat, x: Vector, rows: SparseRows | None, work: Callable[[Flat], ClientWork]
) -> None:
    """Compare passes on the first batch of a client, to the bit.

    A new model computes them, and then `flat`, after passes with other examples and weights and whatever it
    has seen before. `work` returns the work of the client with a model.
    """

    def compute(flat: Flat, x: Vector, batch: Batch) -> int:
        """Return a checksum of the loss in evaluation and of the gradient in training."""
        inputs, targets = map_tensors(Tensor.clone, batch)  # a model may change its inputs
        with seeded(problem.seed, "hidden state"):
            flat.bind(x.clone(), rows)
            flat.evaluate()
            with torch.no_grad():
                losses = problem.losses(call_model(flat.module, inputs), targets)
            flat.train()
            gradient = work(flat).gradient(x.clone(), map_tensors(Tensor.clone, batch))
        flat.check_tensors()
        return zlib.crc32(gradient.numpy().data, zlib.crc32(losses.float().numpy().tobytes()))

    batch, *later = islice(work(flat).batches(), 2)
    other = map_tensors(lambda part: part[torch.arange(len(part)) // 2], later[0] if later else batch)
    y = x + 0.01 * torch.arange(len(x)).cos()  # `flat` has seen x, where all outputs may be equal
    expected = compute(Flat(build_module(problem), problem.buffers), y, batch)
    compute(flat, x, other)
    repeated = compute(flat, y, batch)
    if problem.fixed is not None:
        problem.fixed.check()
    if repeated != expected:
        raise ModelError(
            "the same batch, weights and seed give different results: the model depends on state outside of "
            "its parameters and buffers, such as a counter or another attribute, a random generator of its "
            "own, or the time",
            what="model",
        )
