"""Evaluate a module on examples: sums over all of them, or over those of each client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.data import Arrays
from fedopt.engine.client import tensors
from fedopt.engine.mismatch import broadcasting_refused
from fedopt.engine.problem import Problem
from fedopt.errors import ModelError
from fedopt.tasks.batch import call_model, count_examples, has_nan

EVAL_BATCH = 100  # examples, as in the authors' code; fixed, because the sum depends on the batches

Values = NDArray[np.float64]


class EvaluationSums(NamedTuple):
    """Sums over some examples: the loss, and numerator and denominator of each metric."""

    examples: int
    loss: float
    metrics: dict[str, tuple[float, float]]


def evaluate_examples(problem: Problem, module: nn.Module, arrays: Arrays, batch_size: int) -> EvaluationSums:
    """Return the sums over all examples. The module is in evaluation mode."""
    n, loss = len(arrays[0]), 0.0
    sums = {name: np.zeros(2) for name in problem.metrics}
    with torch.no_grad():
        for start in range(0, n, batch_size):
            rows = slice(start, start + batch_size)
            inputs, targets = problem.prepare(tensors(arrays, rows), None)
            outputs = call_model(module, inputs)
            first_check = broadcasting_refused() if start == 0 else nullcontext()
            with first_check:
                losses = problem.losses(outputs, targets)
            examples = count_examples(targets)
            part = float(losses.cpu().double().sum()) if losses.ndim else float(losses) * examples
            loss += part
            # A metric can be a valid number for outputs that are not, such as the largest of NaN scores.
            undefined = not isfinite(part) and has_nan(outputs)
            for name, metric in problem.metrics.items():
                sums[name] += np.nan if undefined else _metric_sums(name, metric(outputs, targets))
    return EvaluationSums(n, loss, {name: (float(a), float(b)) for name, (a, b) in sums.items()})


def _metric_sums(name: str, value: Any) -> list[float]:
    """Return the sums of numerator and denominator of a metric."""
    if not (isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, Tensor) for v in value)):
        raise ModelError(
            f"the metric {name!r} must return two tensors, the numerator and the denominator of each example",
            what=name,
        )
    return [float(part.cpu().double().sum()) for part in value]


def evaluate_clients_together(
    problem: Problem, module: nn.Module, arrays: Arrays, sizes: Sequence[int], batch_size: int
) -> tuple[EvaluationSums, ...] | None:
    """Return the sums of each client. `arrays` has the examples of all clients, one client after the other.

    Return None if the loss or a metric has no value for each example, for example a mean over the batch.
    """
    values = _example_values(problem, module, arrays, batch_size)
    if values is None:
        return None
    starts = np.cumsum([0, *sizes[:-1]])
    losses, *metrics = (np.add.reduceat(value, starts, axis=0) for value in values)
    return tuple(
        EvaluationSums(
            size,
            float(losses[at]),
            {
                name: (float(sums[at, 0]), float(sums[at, 1]))
                for name, sums in zip(problem.metrics, metrics, strict=True)
            },
        )
        for at, size in enumerate(sizes)
    )


def _example_values(
    problem: Problem, module: nn.Module, arrays: Arrays, batch_size: int
) -> list[Values] | None:
    """Return the loss of each example, (n,), and numerator and denominator of each metric, (n, 2)."""
    parts: list[list[Values]] = [[] for _ in range(1 + len(problem.metrics))]
    n = len(arrays[0])
    with torch.no_grad():
        for start in range(0, n, batch_size):
            size = min(batch_size, n - start)
            inputs, targets = problem.prepare(tensors(arrays, slice(start, start + size)), None)
            outputs = call_model(module, inputs)
            losses = _per_example(problem.losses(outputs, targets), size)
            if losses is None:
                return None
            parts[0].append(losses)
            # A metric can be a valid number for outputs that are not, such as the largest of NaN scores.
            undefined = ~np.isfinite(losses) if has_nan(outputs) else np.zeros(size, dtype=bool)
            for values, metric in zip(parts[1:], problem.metrics.values(), strict=True):
                numerator, denominator = (_per_example(part, size) for part in metric(outputs, targets))
                if numerator is None or denominator is None:
                    return None
                pairs = np.stack([numerator, denominator], axis=1)
                pairs[undefined] = np.nan
                values.append(pairs)
    return [np.concatenate(values) for values in parts]


def _per_example(values: Tensor, size: int) -> Values | None:
    return values.detach().cpu().double().numpy() if values.shape == (size,) else None
