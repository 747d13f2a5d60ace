"""What a worker does: run one client, or measure the model on some examples. One body for every executor."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from fedopt import rng
from fedopt.algorithms.base import ClientResult, Round, Still, Vector
from fedopt.algorithms.state import all_finite
from fedopt.data import Arrays, Federation
from fedopt.engine.client import ClientWork, tensors
from fedopt.engine.in_place_sgd import in_place
from fedopt.engine.problem import Problem
from fedopt.errors import FedoptError, RunError, UserError
from fedopt.models.flat import Flat, aligned
from fedopt.models.sparse_rows import Part

EVAL_BATCH = 100  # examples, as the authors; fixed, because a sum of floats depends on how it is cut


class ClientJob(NamedTuple):
    """Train the client at this position in this round."""

    round: Round
    client: int
    examples: int = 0  # which it has, for those who plan


class SampleJob(NamedTuple):
    """Measure the model on rows start to stop of the evaluation sample."""

    start: int
    stop: int


class SplitJob(NamedTuple):
    """Measure the model on all examples of one client of a split."""

    split: str
    client: int


Job = ClientJob | SampleJob | SplitJob


class Outcome(NamedTuple):
    """A trained client, in numbers; its vectors travel beside it."""

    client: int
    weight: float
    steps: int
    examples: int
    loss: float  # sum over the processed examples
    finite: bool  # all that it returns and keeps
    part: Part | None = None  # of the model that its vectors hold; None: the whole


class Measured(NamedTuple):
    """Sums over some examples: loss, and numerator and denominator of each metric."""

    examples: int
    loss: float
    metrics: dict[str, tuple[float, float]]


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread and no flushing of denormal numbers, as in the workers, because both change results.

    What the user had set is restored afterwards.
    """
    threads = torch.get_num_threads()
    flushes = bool(torch.full((1,), 1e-39) * 1 == 0)  # torch does not tell otherwise
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushes)


@contextmanager
def seeded(*parts: int | str) -> Iterator[None]:
    """torch's default generator, which nn.Dropout and initialisers use, seeded here and restored after."""
    seed = rng.torch_seed(*parts)
    before = torch.get_rng_state()
    if torch.accelerator.is_available():
        torch.manual_seed(seed)  # those of the devices as well
    else:  # the same, without the half millisecond that noting this for other devices takes
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def initial_vector(problem: Problem) -> Vector:
    """x_0: the model's initialisation under this run's seed, in one thread (QR depends on their number)."""
    with single_thread(), seeded(problem.seed, "init"):
        try:
            return Flat(problem.model(), problem.buffers).read()
        except FedoptError:
            raise
        except Exception as error:
            raise UserError(
                f"the model cannot be built: {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error


class Runner:
    """Holds one model and the data of one problem, and runs jobs on them, one after the other."""

    def __init__(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        with seeded(problem.seed, "init"):
            self.flat = Flat(problem.model(), problem.buffers)
        self.problem = problem
        self.federation = federation
        self.algorithm = problem.algorithm()
        self.client = in_place(self.algorithm.client)
        self.sample = sample
        self.work: Callable[..., ClientWork] = ClientWork  # `vectorised` has another

    def run(
        self,
        job: Job,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        room: Vector | None = None,
    ) -> tuple[Outcome | Measured, tuple[Vector, ...]]:
        """The job's numbers and, for a client, the vectors it returns followed by those it keeps.

        `room` is memory in which the first of these may be made, where that saves a copy.
        """
        try:
            return self._run(job, tuple(aligned(v) for v in sent), kept, room)
        except FedoptError:
            raise
        except Exception as error:  # in the user's model, loss, data or algorithm
            raise self._failure(job, error) from error

    def _run(
        self, job: Job, sent: tuple[Vector, ...], kept: tuple[Vector, ...] | None, room: Vector | None
    ) -> tuple[Outcome | Measured, tuple[Vector, ...]]:
        if isinstance(job, ClientJob):
            return self._train(job, sent, kept, room)
        if isinstance(job, SampleJob):
            arrays = tuple(a[job.start : job.stop] for a in self.sample)
        else:
            arrays = getattr(self.federation, job.split).client(job.client)
        return self._measure(arrays, sent[0]), ()

    def _failure(self, job: Job, error: Exception) -> RunError:
        """One line that names the client and the round, with the traceback as a note."""
        where = "evaluation"
        if isinstance(job, ClientJob):
            where = f"client {self.federation.train.ids[job.client]!r} in round {job.round.t + 1}"
        elif isinstance(job, SplitJob):
            where = f"evaluation of client {getattr(self.federation, job.split).ids[job.client]!r}"
        failure = RunError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}")
        failure.add_note(traceback.format_exc())
        return failure

    def _train(
        self,
        job: ClientJob,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        room: Vector | None,
    ) -> tuple[Outcome, tuple[Vector, ...]]:
        split = self.federation.train
        client = split.ids[job.client]
        arrays, part = self._touched(split.client(job.client))
        work = self.work(self.problem, self.flat, arrays, client, job.round, kept, part)
        work.room = room
        if work.steps == 0:  # fewer examples than a batch, and short batches are dropped
            return Outcome(job.client, 0.0, 0, 0, 0.0, True), ()
        if part is not None:
            sent = tuple(part.take(v) for v in sent)
        self.flat.train()
        marks = self.flat.buffer_marks()
        versions = [v._version for v in sent]
        with (
            seeded(self.problem.seed, "client", job.round.t, client),
            self.problem.profile("client", job.round.t),
        ):
            result = self.client(work, *sent)
        self._check_result(result, sent[0])
        if versions != [v._version for v in sent]:
            raise UserError(
                "a client changed what it was sent in place; write x_i = x_i - ..., not x_i -= ..."
            )
        self._refuse_changed_buffers(marks)
        vectors = result.returns + result.keeps
        finite = all(map(all_finite, vectors))
        books = work.books()
        outcome = Outcome(job.client, work.weight(), books.steps, books.examples, books.loss, finite, part)
        return outcome, vectors

    def _touched(self, arrays: Arrays) -> tuple[Arrays, Part | None]:
        """A client's examples and the part of the model that they touch, where both sides allow for it."""
        if self.problem.touched is None or not isinstance(self.algorithm.client, Still):
            return arrays, None
        height, width = self.flat.shapes[0]
        rows, numbered = self.problem.touched(arrays, height)
        return numbered, Part(torch.from_numpy(rows), height, width, self.flat.d - height * width)

    def _check_result(self, result: Any, x: Vector) -> None:
        """Refuse what the algorithm did not declare: shared memory and the count of bytes rely on that."""
        algorithm = self.algorithm
        if not isinstance(result, ClientResult):
            raise UserError(f"a client must return a ClientResult, not a {type(result).__name__}")
        counts = len(result.returns), len(result.keeps)
        if counts != (len(algorithm.returns), len(algorithm.keeps)):
            raise UserError(
                f"the algorithm declares returns={algorithm.returns} and keeps={algorithm.keeps}; its client "
                f"gave {counts[0]} and {counts[1]} vectors"
            )
        for vector in result.returns + result.keeps:
            if vector.shape != x.shape or vector.dtype != x.dtype:
                raise UserError(
                    f"a client's vectors must be like x, {tuple(x.shape)} {x.dtype}; one is "
                    f"{tuple(vector.shape)} {vector.dtype}"
                )

    def _measure(self, arrays: Arrays, x: Vector) -> Measured:
        self.flat.bind(x)
        self.flat.module.eval()
        n, loss = len(arrays[0]), 0.0
        sums = {name: np.zeros(2) for name in self.problem.metrics}
        with torch.no_grad():
            for start in range(0, n, EVAL_BATCH):
                rows = slice(start, start + EVAL_BATCH)
                inputs, targets = self.problem.prepare(tensors(arrays, rows), None)
                outputs = self.flat.module(inputs)
                losses = self.problem.loss(outputs, targets)
                loss += float(losses.cpu().double().sum()) if losses.ndim else float(losses) * len(targets)
                for name, metric in self.problem.metrics.items():
                    sums[name] += [float(part.cpu().double().sum()) for part in metric(outputs, targets)]
        return Measured(n, loss, {name: (float(a), float(b)) for name, (a, b) in sums.items()})

    def _refuse_changed_buffers(self, before: dict[str, tuple[int, int]]) -> None:
        changed = [name for name, mark in self.flat.buffer_marks().items() if before.get(name) != mark]
        if changed:
            raise UserError(
                f"training changed buffer {changed[0]!r} of the model, which has no federated mean; "
                "make it a parameter or keep it constant"
            )
