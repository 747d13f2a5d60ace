"""Blocks of clients: what they receive, their batches, and several blocks as one stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedopt.algorithms.base import ClientResult, Vector
from fedopt.engine.stacked.batches import BlockBatches, ClientBatches, MaskedBatches
from fedopt.engine.worker import ClientJob


class BlockJobs(NamedTuple):
    """The clients of a block and what they receive."""

    seed: int  # of the run
    jobs: Sequence[ClientJob]
    columns: int  # of the block; more than jobs if the last block of a round is smaller
    sent: tuple[Vector, ...]
    kept: Sequence[tuple[Vector, ...] | None]  # vectors that each client kept


@dataclass(frozen=True)
class BlockPart:
    """The batches of a block, and which of its clients have any."""

    batches: ClientBatches
    masked: MaskedBatches
    chosen: Sequence[int]
    columns: int

    @cached_property
    def training(self) -> BlockBatches:
        """The batches of the local work."""
        return self.masked.training(self.chosen, self.columns)

    @cached_property
    def full(self) -> BlockBatches:
        """All batches in order, each once."""
        return self.masked.full(self.chosen, self.columns)

    def kept(self, block: BlockJobs) -> list[tuple[Vector, ...] | None]:
        """Return the vectors that the client of each column kept."""
        missing = self.columns - len(self.chosen)
        return [*(block.kept[i] for i in self.chosen), *[None] * missing]


def join_batches(blocks: Sequence[BlockBatches], columns: int) -> BlockBatches:
    """Join blocks as columns of one stack. Missing steps and columns repeat others, with no examples."""
    steps = max(len(block.counts) for block in blocks)
    if len(blocks) == 1 and blocks[0].counts.shape[1] == columns:
        return blocks[0]

    def join(parts: Sequence[Tensor]) -> Tensor:
        padded = [_repeat_first(part, steps, 0) for part in parts]
        return _repeat_first(torch.cat(padded, dim=1), columns, 1)

    counts = torch.cat([_pad_zeros(block.counts, steps) for block in blocks], dim=1)
    counts = torch.nn.functional.pad(counts, (0, columns - counts.shape[1]))
    masks = tuple(map(join, zip(*(block.masks for block in blocks), strict=True)))
    inputs = join([block.inputs for block in blocks])
    return BlockBatches(inputs, join([block.targets for block in blocks]), counts, masks)


def _repeat_first(part: Tensor, size: int, dim: int) -> Tensor:
    """Extend a dimension to `size` with copies of its first entry."""
    missing = size - part.shape[dim]
    if not missing:
        return part
    shape = list(part.shape)
    shape[dim] = missing
    return torch.cat([part, part.narrow(dim, 0, 1).expand(shape)], dim)


def _pad_zeros(counts: Tensor, steps: int) -> Tensor:
    return torch.nn.functional.pad(counts, (0, 0, 0, steps - len(counts)))


def stack_vectors(vectors: Sequence[Vector], counts: Sequence[int], columns: int) -> Vector:
    """Repeat each vector for the columns of its block, and the first one for columns without a block."""
    if len(vectors) == 1:
        return vectors[0].expand(columns, -1)
    parts = [vector.expand(count, -1) for vector, count in zip(vectors, counts, strict=True)]
    return torch.cat([*parts, vectors[0].expand(columns - sum(counts), -1)])


def tensor_like(values: Sequence[float], like: Tensor) -> Tensor:
    """Return the values as a tensor with the type and device of `like`."""
    dtype = np.float32 if like.dtype == torch.float32 else np.float64
    return torch.from_numpy(np.array(values, dtype)).to(like)  # takes a third of the time of `torch.tensor`


def take_columns(result: ClientResult, own: slice) -> ClientResult:
    """Return the part of a result that belongs to some columns."""
    return ClientResult(tuple(v[own] for v in result.returns), tuple(v[own] for v in result.keeps))
