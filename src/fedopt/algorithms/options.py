"""Types of hyperparameters.

The keyword arguments of optimizers, schedules and algorithms are configuration keys. Their annotations state
the allowed values, for example `beta1: Fraction = 0.9`. The configuration checks them.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

_LARGEST = 3e38  # about the largest float32 number

Positive = Annotated[float, Gt(0), Le(_LARGEST)]
NonNegative = Annotated[float, Ge(0), Le(_LARGEST)]
Fraction = Annotated[float, Ge(0), Lt(1)]
Count = Annotated[int, Ge(1)]
