"""Runs that are too small to benefit from worker processes.

Two workers save at most half of the training time, and their start takes two to three seconds (measured on
two cores). A run is small if its estimated training time in one process is less than `SMALL_RUN_SECONDS`:

    rounds x clients x (steps x 0.5 ms + examples x 6 x parameters x numbers per example / 20 GFLOP/s)

The last term is an upper bound: it assumes that each parameter is used once for each number of an example.
The estimate is therefore too large for most models, and a run that benefits from workers is not small. The
choice does not change results.
"""

from __future__ import annotations

from fedopt.data import Federation
from fedopt.engine.problem import LocalWork

SMALL_RUN_SECONDS = 5.0
_SECONDS_PER_STEP = 0.5e-3  # without arithmetic
_OPERATIONS_PER_SECOND = 20e9
_OPERATIONS_PER_WEIGHT = 6  # two in the forward pass, four in the backward pass


def training_seconds(
    rounds: int, cohort: int, local: LocalWork, federation: Federation, parameters: int, numbers: int
) -> float:
    """Estimate the training time of `rounds` rounds in one process; `numbers` is the size of an example."""
    examples = float(federation.train.sizes.mean())
    steps = local.planned_steps(max(1, round(examples)))
    trained = steps * local.batch_size if local.steps is not None else local.epochs * examples
    operations = trained * _OPERATIONS_PER_WEIGHT * parameters * numbers
    return rounds * cohort * (steps * _SECONDS_PER_STEP + operations / _OPERATIONS_PER_SECOND)
