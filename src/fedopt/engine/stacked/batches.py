"""Read the batches of a block of clients, once per round, as padded tensors.

The batches are those of `ClientWork`: the same examples in the same order. If the examples of a client can be
prepared once (see `inspection`) and all prepared examples fit in memory, the batches of a block are gathered
from them with one operation. Otherwise each batch is prepared as it would be for a single client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedopt import rng
from fedopt.data import Split
from fedopt.engine.client import ClientWork, rows_in_order, shuffled_rows, tensors
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.dropout import DropoutMasks
from fedopt.engine.stacked.inspection import pad_rows
from fedopt.engine.stacked.model import StackedBatch
from fedopt.engine.worker import ClientJob, seeded
from fedopt.models.flat import Flat
from fedopt.tasks.batch import Batch

_MAX_PREPARED_BYTES = 512 << 20


class BlockBatches(NamedTuple):
    """The batches of a block. The first dimension is the step, the second the client."""

    inputs: Tensor  # (steps, clients, rows, ...)
    targets: Tensor
    counts: Tensor  # (steps, clients): examples of each batch; 0 after a client's last step
    masks: tuple[Tensor, ...] = ()  # of the dropout layers, (steps, clients, rows, ...)

    def step(self, k: int) -> StackedBatch:
        """Return batch k of each client."""
        return StackedBatch(self.inputs[k], self.targets[k], self.counts[k], tuple(m[k] for m in self.masks))


class PreparedExamples:
    """The prepared examples of all clients in one tensor. A client is prepared when it is first needed."""

    def __init__(self, problem: Problem, clients: Split) -> None:
        self._problem = problem
        self._clients = clients
        self.starts = np.concatenate([[0], np.cumsum(clients.sizes)])
        self._is_filled = np.zeros(len(clients.ids), dtype=bool)
        self._all: list[Tensor] = []  # inputs and targets
        self._tokens: dict[int, int] = {}

    def fill(self, client: int) -> bool:
        """Prepare the examples of a client. Return False if they have no place in the tensor."""
        if self._is_filled[client]:
            return True
        arrays = tensors(self._clients.client(client), slice(None))
        parts = self._problem.prepare(arrays, rng.generator("no augmentation"))
        start, stop = self.starts[client], self.starts[client + 1]
        if not self._all:
            total = int(self.starts[-1])
            if total * sum(part[:1].nbytes for part in parts) > _MAX_PREPARED_BYTES:
                return False
            self._all = [torch.empty(total, *part.shape[1:], dtype=part.dtype) for part in parts]
        for whole, part in zip(self._all, parts, strict=True):
            if (stop - start, *whole.shape[1:]) != part.shape or whole.dtype != part.dtype:
                return False
            whole[start:stop] = part
        if self._problem.weighting == "tokens":
            assert self._problem.tokens is not None  # the configuration rejects this weighting otherwise
            self._tokens[client] = self._problem.tokens(arrays)
        self._is_filled[client] = True
        return True

    def tokens(self, client: int) -> int:
        return self._tokens[client]

    def gather(self, index: NDArray[np.int64]) -> list[Tensor]:
        """Return the examples at these positions of the concatenation of all clients."""
        positions = torch.from_numpy(index.reshape(-1))
        return [part.index_select(0, positions).view(*index.shape, *part.shape[1:]) for part in self._all]


class _Rows(NamedTuple):
    """The row numbers of a client's batches."""

    positions: NDArray[np.int64]  # (steps, rows); padding repeats a row
    counts: NDArray[np.int64]  # (steps,)


class ClientBatches(Protocol):
    """The examples and batches of the clients of a block."""

    examples: list[int]  # of each client

    def tokens(self, i: int) -> int:
        """Return the number of tokens of client i of the block, for weighting=tokens."""

    def training(self, clients: Sequence[int], columns: int) -> BlockBatches:
        """Return the batches of the local work of some clients, padded to `columns` clients."""

    def full(self, clients: Sequence[int], columns: int) -> BlockBatches:
        """Return all batches of some clients in order, each once."""


class GatheredBatches:
    """Batches that are gathered from prepared examples."""

    def __init__(
        self,
        problem: Problem,
        clients: Split,
        jobs: Sequence[ClientJob],
        prepared: PreparedExamples,
        rows: int,
    ) -> None:
        self._problem, self._clients, self._jobs, self._prepared = problem, clients, jobs, prepared
        self._width = rows
        self.examples = [int(clients.sizes[job.client]) for job in jobs]

    def tokens(self, i: int) -> int:
        return self._prepared.tokens(self._jobs[i].client)

    def training(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._gather(clients, columns, self._training_rows)

    def full(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._gather(clients, columns, self._full_rows)

    def _gather(self, clients: Sequence[int], columns: int, rows_of: Callable[[int], _Rows]) -> BlockBatches:
        parts = [rows_of(i) for i in clients]
        steps = max(len(part.counts) for part in parts)
        starts = [self._prepared.starts[self._jobs[i].client] for i in clients]
        index = np.empty((steps, columns, self._width), dtype=np.int64)
        counts = np.zeros((steps, columns), dtype=np.float32)
        index[:] = starts[0]
        for column, (start, part) in enumerate(zip(starts, parts, strict=True)):
            own = len(part.counts)
            index[:own, column] = part.positions + start
            index[own:, column] = start
            counts[:own, column] = part.counts
        inputs, targets = self._prepared.gather(index)
        return BlockBatches(inputs, targets, torch.from_numpy(counts))

    def _training_rows(self, i: int) -> _Rows:
        local, job, n = self._problem.local, self._jobs[i], self.examples[i]
        steps, per_epoch = local.planned_steps(n), local.batches_per_epoch(n)
        used = min(n, per_epoch * local.batch_size)  # without a short batch that is dropped
        epochs = -(-steps // per_epoch)
        index = np.zeros((epochs, per_epoch, self._width), dtype=np.int64)
        for epoch in range(epochs):
            order = shuffled_rows(self._problem.seed, job.round.t, self._clients.ids[job.client], epoch, n)
            _fill_rows(index[epoch], order[:used], local.batch_size)
        counts = np.full((epochs, per_epoch), local.batch_size)
        counts[:, -1] = used - (per_epoch - 1) * local.batch_size
        return _Rows(index.reshape(-1, self._width)[:steps], counts.reshape(-1)[:steps])

    def _full_rows(self, i: int) -> _Rows:
        batches = rows_in_order(self._problem.local, self.examples[i])
        index = np.zeros((len(batches), self._width), dtype=np.int64)
        for row, batch in zip(index, batches, strict=True):
            row[:] = batch[0]
            row[: len(batch)] = batch
        return _Rows(index, np.array([len(batch) for batch in batches]))


def _fill_rows(index: NDArray[np.int64], order: NDArray[np.int64], size: int) -> None:
    """Write the rows of an epoch into (batches, rows): `size` in each batch, and the rest in the last one.

    The last batch is padded with its first row.
    """
    full = len(order) // size
    if full:
        index[:full, :size] = order[: full * size].reshape(full, size)
    if full < len(index):
        index[full] = order[full * size]
        index[full, : len(order) - full * size] = order[full * size :]


class PreparedBatches:
    """Batches that are prepared one by one, as for a single client."""

    def __init__(
        self,
        problem: Problem,
        flat: Flat,
        clients: Split,
        jobs: Sequence[ClientJob],
        rows: int,
        pads_inputs: bool,
    ) -> None:
        arrays = [clients.client(job.client) for job in jobs]
        self._works = [
            ClientWork(problem, flat, examples, clients.ids[job.client], job.round, None)
            for job, examples in zip(jobs, arrays, strict=True)
        ]
        self._width, self._pads_inputs = rows, pads_inputs
        self.examples = [len(examples[0]) for examples in arrays]

    def tokens(self, i: int) -> int:
        return self._works[i].tokens()

    def training(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._stack([list(self._works[i].batches()) for i in clients], columns)

    def full(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._stack([list(self._works[i].full_batches()) for i in clients], columns)

    def _stack(self, batches: list[list[Batch]], columns: int) -> BlockBatches:
        steps = max(map(len, batches))
        counts = torch.zeros(steps, columns)
        for column, own in enumerate(batches):
            counts[: len(own), column] = torch.tensor([len(targets) for _, targets in own])
        inputs, targets = ([[batch[part] for batch in own] for own in batches] for part in (0, 1))
        if self._pads_inputs:
            widest = max(a.shape[1] for own in inputs for a in own)
            inputs = [[F.pad(a, (0, widest - a.shape[1])) for a in own] for own in inputs]
        return BlockBatches(self._join(inputs, columns), self._join(targets, columns), counts)

    def _join(self, parts: list[list[Tensor]], columns: int) -> Tensor:
        """Stack [client][step] to (steps, columns, rows, ...). Missing steps and clients repeat others."""
        steps = max(map(len, parts))
        padded = [[pad_rows(a, self._width) for a in own] for own in parts]
        stacks = [torch.stack(own + own[:1] * (steps - len(own))) for own in padded]
        return torch.stack(stacks + stacks[:1] * (columns - len(stacks)), dim=1)


class MaskedBatches:
    """Batches of a block with their dropout masks, on the device of the model."""

    def __init__(
        self,
        problem: Problem,
        ids: Sequence[str],
        t: int,
        batches: ClientBatches,
        masks: DropoutMasks,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        self._problem, self._ids, self._t = problem, ids, t
        self._batches, self._masks = batches, masks
        self._device, self._dtype = device, dtype
        self._rng_states: dict[int, Tensor] = {}  # of clients, after the masks of the training steps

    def training(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._with_masks(self._batches.training(clients, columns), clients)

    def full(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._with_masks(self._batches.full(clients, columns), clients)

    def _with_masks(self, batches: BlockBatches, clients: Sequence[int]) -> BlockBatches:
        if self._masks.is_used:
            drawn = [self._draw(i, column, batches) for column, i in enumerate(clients)]
            drawn += drawn[:1] * (batches.inputs.shape[1] - len(drawn))
            masks = tuple(torch.stack(part, dim=1) for part in zip(*drawn, strict=True))
            batches = batches._replace(masks=masks)
        inputs, targets, counts, masks = batches
        return BlockBatches(
            inputs.to(self._device),
            targets.to(self._device),
            counts.to(self._device, self._dtype),
            tuple(mask.to(self._device) for mask in masks),
        )

    def _draw(self, i: int, column: int, batches: BlockBatches) -> list[Tensor]:
        """Return the masks of a client for all steps, (steps, rows, ...) for each call of a layer."""
        rows = batches.inputs.shape[2]
        with seeded(self._problem.seed, "client", self._t, self._ids[i]):
            if i in self._rng_states:
                torch.set_rng_state(self._rng_states[i])
            steps = [
                [pad_rows(mask, rows) for mask in self._masks.draw(inputs[: int(count)])]
                for inputs, count in zip(batches.inputs[:, column], batches.counts[:, column], strict=True)
                if count
            ]
            self._rng_states[i] = torch.get_rng_state()
        steps += steps[:1] * (len(batches.inputs) - len(steps))
        return [torch.stack(calls) for calls in zip(*steps, strict=True)]
