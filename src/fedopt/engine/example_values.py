"""Loss and metrics of each example, so that examples of many clients can be evaluated together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.data import Arrays
from fedopt.engine.client import tensors
from fedopt.engine.problem import Problem
from fedopt.tasks.batch import call_model, has_nan

Values = NDArray[np.float64]
LOSS = "loss"


def example_values(
    problem: Problem, module: nn.Module, arrays: Arrays, batch_size: int
) -> dict[str, Values] | None:
    """Return the loss of each example, (n,), and numerator and denominator of each metric, (n, 2).

    Return None if the loss or a metric has no value for each example, for example a mean over the batch.
    """
    parts: dict[str, list[Values]] = {LOSS: [], **{name: [] for name in problem.metrics}}
    n = len(arrays[0])
    with torch.no_grad():
        for start in range(0, n, batch_size):
            size = min(batch_size, n - start)
            inputs, targets = problem.prepare(tensors(arrays, slice(start, start + size)), None)
            outputs = call_model(module, inputs)
            losses = _per_example(problem.losses(outputs, targets), size)
            if losses is None:
                return None
            parts[LOSS].append(losses)
            # A metric can be a valid number for outputs that are not, such as the largest of NaN scores.
            undefined = ~np.isfinite(losses) if has_nan(outputs) else np.zeros(size, dtype=bool)
            for name, metric in problem.metrics.items():
                numerator, denominator = (_per_example(part, size) for part in metric(outputs, targets))
                if numerator is None or denominator is None:
                    return None
                values = np.stack([numerator, denominator], axis=1)
                values[undefined] = np.nan
                parts[name].append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def sum_by_client(values: Values, sizes: Sequence[int]) -> Values:
    """Return the sum over the rows of each client."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.asarray(np.add.reduceat(values, starts, axis=0))


def _per_example(values: Tensor, size: int) -> Values | None:
    return values.detach().cpu().double().numpy() if values.shape == (size,) else None
