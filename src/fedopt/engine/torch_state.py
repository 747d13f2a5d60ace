"""Set torch's threads, denormal numbers and default generator for a block of code. They change results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """Seed torch's default generator, which nn.Dropout and initialisers use, and restore it at the end."""
    seed = rng.torch_seed(*parts)
    before = torch.get_rng_state()
    if torch.accelerator.is_available():
        torch.manual_seed(seed)  # also seeds the generators of the devices
    else:  # the same without the half millisecond that torch spends on other devices
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
