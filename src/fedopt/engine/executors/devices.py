"""Find the available devices and choose the one that a run uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedopt.errors import UserError, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def _available_devices() -> list[str]:
    """Return the devices of this machine in order of preference. The CPU is always one of them."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [name for name, present in available.items() if present]


def check_device(name: str, *, local: bool = True) -> None:
    """Check the name of a device. On other machines, "auto" could choose different devices."""
    allowed = DEVICES if local else tuple(device for device in DEVICES if device != "auto")
    if name not in allowed:
        raise unknown("device", name, allowed)


def choose_device(name: str) -> str:
    """Return the device of that name; "auto" is the first available one in order of preference."""
    check_device(name)
    available = _available_devices()
    if name == "auto":
        return available[0]
    if name not in available:
        raise UserError(f"device {name} is not available on this machine; available: {', '.join(available)}")
    return name


@contextmanager
def full_precision() -> Iterator[None]:
    """Use full single precision and deterministic convolutions on CUDA.

    By default torch lets convolutions round their inputs to ten bits. The user's settings are restored at the
    end.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = False, False, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
