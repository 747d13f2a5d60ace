"""Which devices there are, and which one a run is to use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedopt.errors import UserError, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def _present() -> list[str]:
    """In order of preference; the CPU is always there."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name, there in found.items() if there]


def choose_device(name: str) -> str:
    """The device of that name; "auto" is the best there is."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    present = _present()
    if name == "auto":
        return present[0]
    if name not in present:
        raise UserError(f"this machine, or its torch, has no device {name}; there is: {', '.join(present)}")
    return name


def vectorised_on(executor: str, device: str) -> str | None:
    """Where clients train many at a time: on any device but the CPU, and there if asked for.

    None is the plain way, on the CPU, which has nothing to record.
    """
    chosen = choose_device(device)
    return chosen if chosen != "cpu" or executor == "vectorised" else None


@contextmanager
def full_precision() -> Iterator[None]:
    """CUDA's products and convolutions in whole single precision, and its convolutions the same every time.

    torch lets convolutions round their factors to ten bits by default. What the user had set is restored.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = False, False, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
