"""Read the batches of a block of clients, once per round, as padded tensors.

The batches are those of `ClientWork`: the same examples in the same order. If the examples of a client can be
prepared once (see `inspection`) and all prepared examples fit in memory, the batches of a block are gathered
from them with one operation. Otherwise each batch is prepared as it would be for a single client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedopt import rng
from fedopt.data import Split
from fedopt.engine.client import ClientWork, shuffled_rows, tensors
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.dropout import DropoutMasks
from fedopt.engine.stacked.inspection import pad_rows
from fedopt.engine.stacked.model import StackedBatch
from fedopt.engine.torch_state import kept_generators, seeded
from fedopt.engine.worker import ClientJob
from fedopt.models.flat import Flat
from fedopt.tasks.batch import Batch

_MAX_PREPARED_BYTES = 512 << 20
_NUMPY_TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)


class BlockBatches(NamedTuple):
    """The batches of a block. The first dimension is the step, the second the client."""

    inputs: Tensor  # (steps, clients, rows, ...)
    targets: Tensor
    counts: Tensor  # (steps, clients): examples of each batch; 0 after a client's last step
    masks: tuple[Tensor, ...] = ()  # of the dropout layers, (steps, clients, rows, ...)

    def steps(self) -> Iterator[StackedBatch]:
        """Yield the batches of each step."""
        for inputs, targets, counts, *masks in self.unbind():
            yield StackedBatch(inputs, targets, counts, tuple(masks))

    def unbind(self) -> Iterable[tuple[Tensor, ...]]:
        """Return inputs, targets, counts and masks of each step."""
        parts = (self.inputs, self.targets, self.counts, *self.masks)
        return zip(*map(torch.unbind, parts), strict=True)


class PreparedExamples:
    """The prepared examples of all clients in one tensor. A client is prepared when it is first needed."""

    def __init__(self, problem: Problem, clients: Split) -> None:
        self._problem = problem
        self._clients = clients
        self.starts: list[int] = [0, *np.cumsum(clients.sizes).tolist()]
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
            total = self.starts[-1]
            if total * sum(part[:1].nbytes for part in parts) > _MAX_PREPARED_BYTES:
                return False
            if any(part.dtype not in _NUMPY_TYPES for part in parts):
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

    def size(self, client: int) -> int:
        """Return the number of examples of a client."""
        return self.starts[client + 1] - self.starts[client]

    def tokens(self, client: int) -> int:
        return self._tokens[client]

    def gather(self, index: NDArray[np.int64]) -> list[Tensor]:
        """Return the examples at these positions of the concatenation of all clients."""
        gathered = []
        for part in self._all:
            out = torch.empty(*index.shape, *part.shape[1:], dtype=part.dtype)
            # `take` is faster than `index_select` for small rows. Every position is valid.
            part.numpy().take(index, axis=0, out=out.numpy(), mode="clip")
            gathered.append(out)
        return gathered


class ClientBatches(Protocol):
    """The examples and batches of the clients of a block."""

    examples: list[int]  # of each client
    steps: list[int]  # of the local work of each client; 0 without a batch

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
        self.examples = [prepared.size(job.client) for job in jobs]
        self.steps = [problem.local.planned_steps(n) for n in self.examples]

    def tokens(self, i: int) -> int:
        return self._prepared.tokens(self._jobs[i].client)

    def training(self, clients: Sequence[int], columns: int) -> BlockBatches:
        return self._gather(clients, columns, [self.steps[i] for i in clients], self._shuffled)

    def full(self, clients: Sequence[int], columns: int) -> BlockBatches:
        steps = [self._problem.local.batches_per_epoch(self.examples[i]) for i in clients]
        return self._gather(clients, columns, steps, lambda i, epoch: np.arange(self.examples[i]))

    def _shuffled(self, i: int, epoch: int) -> NDArray[np.int64]:
        job = self._jobs[i]
        client = self._clients.ids[job.client]
        return shuffled_rows(self._problem.seed, job.round.t, client, epoch, self.examples[i])

    def _gather(
        self,
        clients: Sequence[int],
        columns: int,
        steps: Sequence[int],
        order: Callable[[int, int], NDArray[np.int64]],
    ) -> BlockBatches:
        """Gather a number of steps for each client. `order` returns the rows of client i in an epoch.

        A padded row repeats the first row of its batch, and a padded step the first row of its client. A
        column without a client repeats the first row of all.
        """
        most, width, size = max(steps), self._width, self._problem.local.batch_size
        index = np.empty((columns, most * width), dtype=np.int64)
        counts = np.zeros((columns, most), dtype=np.float32)
        for i, own_steps, rows, count in zip(clients, steps, index, counts, strict=False):
            n = self.examples[i]
            per_epoch = self._problem.local.batches_per_epoch(n)
            used, end = min(n, per_epoch * size), own_steps * width
            for epoch, first in enumerate(range(0, end, per_epoch * width)):
                taken = min(used, end - first)  # the last epoch may end early
                rows[first : first + taken] = order(i, epoch)[:taken]
                if taken == used < per_epoch * width:  # the last batch is short
                    rows[first + taken : first + per_epoch * width] = rows[first + (per_epoch - 1) * width]
            count[:own_steps] = size
            if used < per_epoch * size:
                count[per_epoch - 1 : own_steps : per_epoch] = used - (per_epoch - 1) * size
            if own_steps < most:
                rows[end:] = rows[0]
        starts = [self._prepared.starts[self._jobs[i].client] for i in clients]
        index[: len(clients)] += np.array(starts)[:, None]
        index[len(clients) :] = index[0, 0]
        positions = index.reshape(columns, most, width).swapaxes(0, 1)
        inputs, targets = self._prepared.gather(positions)
        return BlockBatches(inputs, targets, torch.from_numpy(counts.T.copy()))


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
        self.steps = [work.steps for work in self._works]

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
            with kept_generators():
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
