"""Pieces of work: consecutive jobs that one slot runs without talking to the driver.

The order of summation is part of a result, so clients are summed in the blocks of `engine/aggregate.py`,
whatever the number of slots. A slot that trains a whole block returns one sum. A block can also be trained
client by client on several slots; the driver then adds the clients in the same order. Both give the same sum
to the bit. The first needs one vector per block, the second keeps more slots busy.

A block is trained as a whole if the other slots have enough work in the meantime:

    work of the block x (slots - 1) <= work of all later clients

This is guided self-scheduling (Polychronopoulos and Kuck, 1987) with pieces of two sizes. The clients of the
last blocks, the smallest, fill the slots until the end of the round. A cohort that is small compared with the
number of slots is trained client by client. At most `MAX_SINGLE_CLIENTS` clients of a cohort are trained one
by one, so the driver's traffic grows with the number of blocks, also on a thousand slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedopt.engine.aggregate import BLOCK
from fedopt.engine.worker import Job

MAX_SINGLE_CLIENTS = 256
_EVALUATIONS = 32  # largest piece of evaluations


class Piece(NamedTuple):
    """Consecutive jobs, and their work in local steps."""

    jobs: Sequence[Job]
    steps: int
    is_block: bool  # whether the slot returns one sum for all clients


def split_cohort(jobs: Sequence[Job], steps: Sequence[int], slots: int) -> list[list[Piece]]:
    """Divide the clients of a round. Return the pieces of each block; `steps` is the work of each client.

    >>> [[len(piece.jobs) for piece in block] for block in split_cohort(range(28), [1] * 28, slots=2)]
    [[8], [8], [1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1]]
    """
    blocks = []
    later = sum(steps)
    for start in range(0, len(jobs), BLOCK):
        block, work = jobs[start : start + BLOCK], steps[start : start + BLOCK]
        later -= sum(work)
        is_early = len(jobs) - start > MAX_SINGLE_CLIENTS
        if is_early or sum(work) * (slots - 1) <= later:
            blocks.append([Piece(block, sum(work), True)])
        else:
            blocks.append([Piece([job], n, False) for job, n in zip(block, work, strict=True)])
    return blocks


def split_blocks(jobs: Sequence[Job], steps: Sequence[int]) -> list[list[Piece]]:
    """Divide the clients of a round into whole blocks, for slots that train a block at once."""
    return split_cohort(jobs, steps, slots=1)


def split_evaluation(jobs: Sequence[Job], slots: int) -> list[Piece]:
    """Divide evaluations into pieces that become smaller towards the end.

    >>> [len(piece.jobs) for piece in split_evaluation(range(20), slots=2)]
    [5, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1]
    """
    pieces = []
    position = 0
    while position < len(jobs):
        size = min(max((len(jobs) - position) // (2 * slots), 1), _EVALUATIONS)
        pieces.append(Piece(jobs[position : position + size], size, False))
        position += size
    return pieces
