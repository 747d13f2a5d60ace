"""Refuse models with hidden state: a pass may depend on weights, buffers, batch and seed only.

Otherwise results depend on what a process has computed before: on the executor, the number of workers, the
rounds of evaluations and interruptions.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from itertools import islice, product

import numpy as np
import torch
from torch import Tensor, nn

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

    A new model computes them, and then `flat`, after passes with other examples, with other weights, and
    whatever it has seen before. `work` returns the work of the client with a model.
    """

    def compute(flat: Flat, x: Vector, batch: Batch, is_training: bool) -> int:
        """Return a checksum of the gradient in training or of the loss in evaluation."""
        inputs, targets = map_tensors(Tensor.clone, batch)  # a model may change its inputs
        with seeded(problem.seed, "hidden state"):
            flat.bind(x.clone(), rows)
            flat.evaluate()
            if is_training:
                flat.train()
                result = work(flat).gradient(x.clone(), (inputs, targets))
            else:
                with torch.no_grad():
                    result = problem.losses(call_model(flat.module, inputs), targets).float()
        flat.check_tensors()
        return zlib.crc32(result.numpy().tobytes())

    batch, *later = islice(work(flat).batches(), 2)
    other = map_tensors(lambda part: part[torch.arange(len(part)) // 2], later[0] if later else batch)
    y = x + 0.01 * torch.arange(len(x)).cos()  # `flat` has seen x, where all outputs may be equal
    fresh = Flat(build_module(problem), problem.buffers)
    before = _own_generators(flat.module)
    expected = [compute(fresh, y, batch, is_training) for is_training in (False, True)]
    for seen, is_training in product((other, batch), (False, True)):
        compute(flat, x, seen, is_training)
    repeats = []
    for mode in (True, False, None, True, False):  # passes before a pass, and their number, vary
        if mode is None:
            compute(flat, x, other, False)
        else:
            repeats.append(compute(flat, y, batch, mode) == expected[mode])
    if problem.fixed is not None:
        problem.fixed.check()
    if not all(repeats) or _own_generators(flat.module) != before:
        raise ModelError(
            "the same batch, weights and seed give different results: the model depends on state outside of "
            "its parameters and buffers, such as a counter or another attribute, a random generator of its "
            "own, or the time",
            what="model",
        )


def _own_generators(module: nn.Module) -> list[object]:
    """Return the states of the random generators that are attributes of a model."""
    states: list[object] = []
    for value in (value for layer in module.modules() for value in vars(layer).values()):
        if isinstance(value, torch.Generator):
            states.append(value.get_state().tolist())
        elif isinstance(value, np.random.Generator):
            states.append(str(value.bit_generator.state))
        elif isinstance(value, random.Random):
            states.append(value.getstate())
    return states
