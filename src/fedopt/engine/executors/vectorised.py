"""The `vectorised` executor: on one device, clients train many at a time.

Every client runs the body that it runs everywhere (`Runner`), as one of several functions that take turns;
only where it asks for a gradient does it wait for the others, and then all gradients are computed at once
(`stack.py`). So every algorithm runs as it is written, clients may have any number of steps, and shuffling,
augmentation and dropout are each client's own, as with `serial`. The numbers are those of `serial` up to
rounding: products of stacked matrices add up in another order.

A model with operations that `torch.func.vmap` cannot stack is trained one client after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.client import ClientWork
from fedopt.engine.executors.base import Kept, nothing_kept
from fedopt.engine.executors.cooperative import current, turns
from fedopt.engine.executors.devices import full_precision
from fedopt.engine.executors.stacking import Answer, Question, Stack
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job, Outcome, Runner, seeded
from fedopt.models.sparse_rows import Part
from fedopt.tasks.base import Batch, Prepare

FLOATS = 1 << 28  # 1 GiB: what the clients of a stack may hold in all
_VECTORS = 8  # of a client: x_i, its gradient, both once more in the stack, and what the rule computes
_MOST = 256  # clients of a stack: each has a thread


class _Asking(ClientWork):
    """A client's work, whose gradients are computed with those of others."""

    stack: Stack

    def gradient(self, x: Vector, batch: Batch) -> Vector:
        turn = current()
        if turn is None:
            return super().gradient(x, batch)
        inputs, targets = batch
        before = torch.get_rng_state()
        answer: Answer | None = turn.ask(
            Question(x, self._part, inputs, targets, self.stack.masks.draw(inputs))
        )
        if answer is None:  # it cannot be stacked
            torch.set_rng_state(before)
            return super().gradient(x, batch)
        gradient, mean = answer
        self._losses.append((len(targets), mean))
        return gradient


class _Runner(Runner):
    """A runner on a device."""

    def __init__(self, problem: Problem, federation: Federation, sample: Arrays, device: str) -> None:
        there = replace(
            problem,
            model=partial(_model_on, device, problem.model),
            prepare=partial(_batch_on, device, problem.prepare),
        )
        super().__init__(there, federation, sample)
        self.device = device
        self.stack: Stack | None = Stack(problem, device)
        self.fallback_reason = ""
        self._held: dict[torch.Size, int] = {}  # floats of the forward pass, by the shape of the inputs
        self.work, self.client = self._asking, self.algorithm.client

    def _asking(self, *arguments: Any) -> ClientWork:
        work = _Asking(*arguments)
        if self.stack is not None:
            work.stack = self.stack
        return work

    def _touched(self, arrays: Arrays) -> tuple[Arrays, Part | None]:
        arrays, part = super()._touched(arrays)
        return arrays, part and part._replace(rows=part.rows.to(self.device))

    def stay_alone(self, error: Exception) -> None:
        """One client after the other from now on; if a client's data is at fault, that tells whose."""
        self.stack, self.fallback_reason = None, f"{type(error).__name__}: {' '.join(str(error).split())}"

    def room(self, job: ClientJob, floats: int) -> int:
        """How many clients like this one may be stacked: of the job alone, so that a resumed run agrees."""
        if self.stack is None:
            return 1
        try:
            arrays, part = self._touched(self.federation.train.client(job.client))
            work = ClientWork(self.problem, self.flat, arrays, "", job.round, None, part)
            if work.steps == 0:
                return 1
            inputs, targets = next(work.batches())
            if inputs.shape not in self._held:
                with seeded(self.problem.seed, "look"):
                    self._held[inputs.shape] = self.stack.learn(inputs, targets)
        except Exception as error:
            self.stay_alone(error)
            return 1
        d = part.size if part else self.flat.d
        return min(max(floats // (self._held[inputs.shape] + _VECTORS * d), 1), _MOST)


class Vectorised:
    """Trains clients on `device`, as many at a time as hold no more than `floats` numbers."""

    def __init__(self, device: str = "cpu", floats: int = FLOATS) -> None:
        self._device = device
        self._floats = floats

    @property
    def fallback_reason(self) -> str:
        """Why clients of this problem train one after the other; empty if they do not."""
        return self._runner.fallback_reason

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self._runner = _Runner(problem, federation, sample, self._device)

    def share(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return vectors

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        sent = self._there(sent)
        at = 0
        with full_precision():
            while at < len(jobs):
                job = jobs[at]
                if not isinstance(job, ClientJob):
                    yield self._runner.run(job, sent, None)
                    at += 1
                    continue
                chunk = jobs[at : at + self._runner.room(job, self._floats)]
                yield from self._train([j for j in chunk if isinstance(j, ClientJob)], sent, kept)
                at += len(chunk)

    def close(self) -> None:
        pass

    def _there(self, vectors: tuple[Vector, ...]) -> tuple[Vector, ...]:
        return tuple(v.to(self._device) for v in vectors)

    def _train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept
    ) -> Iterator[tuple[Outcome, tuple[Vector, ...]]]:
        runner = self._runner
        bodies = []
        for job in jobs:
            before = kept(job.client)
            bodies.append(partial(runner.run, job, sent, None if before is None else self._there(before)))
        if runner.stack is None:
            yield from (_back(*body()) for body in bodies)
            return
        with turns(bodies) as clients:
            answers: list[Any] = [None] * len(clients)
            asking = clients
            while asking:
                for client, answer in zip(asking, answers, strict=True):
                    client.proceed(answer)
                asking = [client for client in asking if client.question is not None]
                answers = self._answers([client.question for client in asking])
            results = [client.result() for client in clients]
        yield from (_back(*result) for result in results)

    def _answers(self, questions: Sequence[Question]) -> list[Any]:
        stack = self._runner.stack
        if stack is not None and questions:
            try:
                return list(stack.answers(questions))
            except Exception as error:
                self._runner.stay_alone(error)
        return [None] * len(questions)


def _back(outcome: Any, vectors: tuple[Vector, ...]) -> tuple[Outcome, tuple[Vector, ...]]:
    """Results as the server takes them, in the CPU's memory."""
    part: Part | None = outcome.part
    outcome = outcome._replace(part=part and part._replace(rows=part.rows.cpu()))
    return outcome, tuple(v.cpu() for v in vectors)


def _model_on(device: str, build: Callable[[], nn.Module]) -> nn.Module:
    return build().to(device)


def _batch_on(
    device: str, prepare: Prepare, examples: tuple[Tensor, ...], rng: np.random.Generator | None
) -> Batch:
    inputs, targets = prepare(examples, rng)
    return inputs.to(device), targets.to(device)
