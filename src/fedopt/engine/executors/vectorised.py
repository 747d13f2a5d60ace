"""The `vectorised` executor: many clients train at once on one device.

Every client runs the same code as on other executors (`Worker`), in a cooperative thread. It pauses when it
needs a gradient, and the gradients of all paused clients are computed together (`stacking.py`). Every
algorithm runs as it is written. Clients may have any number of steps, and each has its own shuffling,
augmentation and dropout. The results are those of `serial` up to rounding, because products of stacked
matrices are summed in another order.

A model that cannot be stacked is trained one client after the other; `fallback_reason` gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.algorithms.base import ClientResult, Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.executors.cooperative import cooperative_threads, current_thread
from fedopt.engine.executors.devices import full_precision
from fedopt.engine.executors.stacking import GradientReply, GradientRequest, StackedModel
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, ClientReport, Job, Worker, one_line, seeded
from fedopt.files import Log
from fedopt.models.capabilities import has_gradient_hooks
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.base import Prepare
from fedopt.tasks.batch import Batch, map_tensors

MAX_FLOATS = 1 << 28  # 1 GiB: limit for all clients of a stack together
_VECTORS_PER_CLIENT = 8  # x_i and its gradient, both again in the stack, and the vectors of the algorithm
_MAX_CLIENTS = 256  # in a stack; each has a thread


class _StackedWork(ClientWork):
    """A client's work whose gradients are computed together with those of other clients."""

    stack: StackedModel

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        thread = current_thread()
        if thread is None:
            return super().gradient(x, batch)
        inputs, targets = batch
        rng_state = torch.get_rng_state()
        masks = self.stack.masks.draw(inputs)
        reply: GradientReply | None = thread.wait_for_reply(
            GradientRequest(x, self._rows, inputs, targets, masks)
        )
        if reply is None:  # stacking has been disabled
            torch.set_rng_state(rng_state)
            return super().gradient(x, batch)
        self._losses.append((len(targets), reply.loss))
        return reply.gradient


class _DeviceWorker(Worker):
    """A worker on a device, with a stacked model unless stacking is disabled."""

    def __init__(self, problem: Problem, federation: Federation, sample: Arrays, device: str) -> None:
        on_device = replace(
            problem,
            model=partial(_model_on, device, problem.model),
            prepare=partial(_batch_on, device, problem.prepare),
        )
        super().__init__(on_device, federation, sample)
        self.device = device
        self.fallback_reason = ""
        self._saved_floats: dict[torch.Size, int] = {}  # of the forward pass, by the shape of the inputs
        self.stack: StackedModel | None = StackedModel(problem, device)
        if has_gradient_hooks(self.flat.module):
            self.disable_stacking("the model has gradient hooks on its parameters")
        elif self.flat.statistics is not None:
            self.disable_stacking("clients update the running statistics of normalization layers")

    def _client_function(self) -> Callable[..., ClientResult]:
        return self.algorithm.client  # in-place SGD does not call `gradient`

    def client_work(self, *arguments: Any) -> ClientWork:
        if self.stack is None:
            return super().client_work(*arguments)
        work = _StackedWork(self.problem, self.flat, *arguments)
        work.stack = self.stack
        return work

    def client_data(self, client: int) -> tuple[Arrays, SparseRows | None]:
        arrays, rows = super().client_data(client)
        return arrays, rows and rows._replace(rows=rows.rows.to(self.device))

    def disable_stacking(self, reason: str) -> None:
        """Train one client after the other from now on. Errors in a client's data then name the client."""
        self.stack, self.fallback_reason = None, reason

    def stack_size(self, job: ClientJob, floats: int) -> int:
        """Return how many clients like this one fit in a stack.

        The result depends on the job only, so that a resumed run forms the same stacks.
        """
        if self.stack is None:
            return 1
        try:
            arrays, rows = self.client_data(job.client)
            work = ClientWork(self.problem, self.flat, arrays, "", job.round, None, rows)
            if work.steps == 0:
                return 1
            inputs, targets = next(work.batches())
            if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
                self.disable_stacking("the inputs or targets are nested")
                return 1
            if inputs.shape not in self._saved_floats:
                with seeded(self.problem.seed, "look"):
                    self._saved_floats[inputs.shape] = self.stack.inspect(inputs, targets)
        except Exception as error:
            self.disable_stacking(one_line(error))
            return 1
        d = rows.size if rows else self.flat.d
        per_client = self._saved_floats[inputs.shape] + _VECTORS_PER_CLIENT * d
        return min(max(floats // per_client, 1), _MAX_CLIENTS)


class Vectorised:
    """Trains clients on `device`, as many at once as hold at most `floats` numbers."""

    def __init__(self, device: str = "cpu", floats: int = MAX_FLOATS) -> None:
        self._device = device
        self._floats = floats

    is_started = True

    @property
    def fallback_reason(self) -> str:
        return self._worker.fallback_reason

    def report_to(self, log: Log) -> None:
        pass

    def start(self) -> None:
        pass

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._worker = _DeviceWorker(problem, federation, sample, self._device)

    def share(self, x: Vector) -> Vector:
        return x.clone()

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        return train_by_client(self, jobs, sent, kept, len(self._worker.algorithm.returns))

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        sent = self._to_device(sent)
        position = 0
        with full_precision():
            while position < len(jobs):
                job = jobs[position]
                if not isinstance(job, ClientJob):
                    yield self._worker.run(job, sent, None)
                    position += 1
                    continue
                chunk = jobs[position : position + self._worker.stack_size(job, self._floats)]
                yield from self._train([j for j in chunk if isinstance(j, ClientJob)], sent, kept)
                position += len(chunk)

    def close(self) -> None:
        pass

    def _to_device(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return tuple(v.to(self._device) for v in vectors)

    def _train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept
    ) -> Iterator[tuple[ClientReport, tuple[Vector, ...]]]:
        worker, functions = self._worker, []
        for job in jobs:
            vectors = kept(job.client)
            functions.append(partial(worker.run, job, sent, vectors and self._to_device(vectors)))
        if worker.stack is None:
            yield from (_to_cpu(*function()) for function in functions)
            return
        with cooperative_threads(functions) as threads:
            replies: list[Any] = [None] * len(threads)
            waiting = threads
            while waiting:
                for thread, reply in zip(waiting, replies, strict=True):
                    thread.resume(reply)
                waiting = [thread for thread in waiting if thread.request is not None]
                replies = self._replies([thread.request for thread in waiting])
            results = [thread.result() for thread in threads]
        yield from (_to_cpu(*result) for result in results)

    def _replies(self, requests: Sequence[GradientRequest]) -> list[Any]:
        """Return the gradients, or None for each request if they cannot be stacked."""
        stack = self._worker.stack
        if stack is not None and requests:
            try:
                return list(stack.gradients(requests))
            except Exception as error:
                self._worker.disable_stacking(one_line(error))
        return [None] * len(requests)


def _to_cpu(report: Any, vectors: tuple[Vector, ...]) -> tuple[ClientReport, tuple[Vector, ...]]:
    rows: SparseRows | None = report.rows
    report = report._replace(rows=rows and rows._replace(rows=rows.rows.cpu()))
    return report, tuple(v.cpu() for v in vectors)


def _model_on(device: str, build: Callable[[], nn.Module]) -> nn.Module:
    return build().to(device)


def _batch_on(
    device: str, prepare: Prepare, examples: tuple[Tensor, ...], rng: np.random.Generator | None
) -> Batch:
    def to_device(part: Tensor) -> Tensor:
        return part.to(device)

    inputs, targets = prepare(examples, rng)
    return map_tensors(to_device, inputs), map_tensors(to_device, targets)
