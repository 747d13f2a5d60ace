"""Set torch's threads, denormal numbers and the global generators in a block of code: they change results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

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


_are_kept = False  # whether a block of `kept_generators` is open


@contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the user's global generators of NumPy and Python at the end.

    This takes as long as a local step of a small model, so `seeded` leaves it to an outer block.
    """
    global _are_kept
    before = _are_kept, random.getstate(), np.random.get_state()  # noqa: NPY002  user code draws from it
    _are_kept = True
    try:
        yield
    finally:
        _are_kept = before[0]
        random.setstate(before[1])
        np.random.set_state(before[2])  # noqa: NPY002


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and restore the user's at the end.

    nn.Dropout, initialisers and user code draw from them.
    """
    seed = rng.torch_seed(*parts)
    before = torch.get_rng_state()
    with nullcontext() if _are_kept else kept_generators():
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
