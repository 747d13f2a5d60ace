"""Vectors in memory that worker processes share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import torch

from fedopt.algorithms.base import Vector
from fedopt.errors import WorkerError

_ROW_ALIGNMENT = 16  # floats: rows start at multiples of 64 bytes


class SharedVectors:
    """Rows of `d` floats in shared memory."""

    def __init__(self, count: int, d: int) -> None:
        self.rows = share(torch.zeros(max(count, 1), _stride(d)))
        self.d = d

    def __getitem__(self, index: int) -> Vector:
        row: Vector = self.rows[index, : self.d]
        return row

    def write(self, first: int, vectors: Sequence[Vector]) -> None:
        for offset, vector in reversed(list(enumerate(vectors))):  # a later one may be in the first row
            self[first + offset][: len(vector)].copy_(vector)

    def read(self, first: int, lengths: Sequence[int]) -> tuple[Vector, ...]:
        return tuple(self[first + offset][:length] for offset, length in enumerate(lengths))


def vector_bytes(count: int, d: int) -> int:
    """The memory of `SharedVectors(count, d)`."""
    return max(count, 1) * _stride(d) * 4


def _stride(d: int) -> int:
    return -(-d // _ROW_ALIGNMENT) * _ROW_ALIGNMENT


def share(tensor: torch.Tensor) -> torch.Tensor:
    """Move a tensor to shared memory."""
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]


def check_shared_memory(needed: int) -> None:
    """Raise an error if `needed` bytes are not free. Without this check, a process would be killed later."""
    if not os.path.isdir("/dev/shm"):
        return
    free = shutil.disk_usage("/dev/shm").free
    if needed > free:
        raise WorkerError(
            f"workers need {needed / 1e6:.0f} MB of shared memory and /dev/shm has {free / 1e6:.0f} MB; "
            "enlarge it, use fewer workers or a smaller eval.sample, or the serial executor"
        )
