"""Set torch's threads, denormal numbers and the global generators in a block of code: they change results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from fedopt import rng


@contextmanager
def single_thread() -> Iterator[None]:
    """Use one thread and do not flush denormal numbers, as in worker processes: both change results.

    The user's settings are restored at the end.
    """
    threads = torch.get_num_threads()
    flushes = bool(torch.full((1,), 1e-39) * 1 == 0)  # torch has no function for this
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushes)


_kept: list[tuple[Any, Any]] | None = None  # states to be restored by the open block of `kept_generators`


@contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the user's global generators of NumPy and Python at the end, if a block inside has seeded them.

    This takes as long as a local step of a small model, so `seeded` leaves it to an outer block.
    """
    global _kept
    states: list[tuple[Any, Any]] = []
    outer, _kept = _kept, states
    try:
        yield
    finally:
        _kept = outer
        for numpy, python in states:
            np.random.set_state(numpy)  # noqa: NPY002  the generator of user code
            random.setstate(python)


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and restore the user's at the end.

    nn.Dropout, initialisers and user code draw from them.
    """
    seed = rng.torch_seed(*parts)
    before = torch.get_rng_state()
    with nullcontext() if _kept is not None else kept_generators():
        if not _kept and _kept is not None:
            _kept.append((np.random.get_state(), random.getstate()))  # noqa: NPY002
        if torch.accelerator.is_available():
            torch.manual_seed(seed)  # also seeds the generators of the devices
        else:  # the same without the half millisecond that torch spends on other devices
            torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            torch.set_rng_state(before)


def generator_states() -> tuple[object, ...]:
    """Return the states of the global generators as values that can be compared."""
    numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), numpy["key"].tolist(), numpy["pos"]
