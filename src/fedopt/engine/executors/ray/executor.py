"""The executor that trains clients on a Ray cluster.

x is put into Ray's object store once per round, and each node fetches it once. Slots take pieces of the
cohort as they become free. The driver adds the blocks in order, so the result is that of `serial` to the bit.
A piece whose slot or node dies runs again on another one. A piece that takes three times as long as expected
also runs on another slot, and its first answer counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.data.store.stored import manifest_checksum
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.executors import available_cores
from fedopt.engine.executors.base import BlockResult, Kept, nothing_kept
from fedopt.engine.executors.blocks import add_client
from fedopt.engine.executors.ray.attempts import MAX_DEATHS, Attempts, PieceTimes
from fedopt.engine.executors.ray.connection import connected, import_ray
from fedopt.engine.executors.ray.nodes import describe_failure
from fedopt.engine.executors.ray.pieces import Piece, split_blocks, split_cohort, split_evaluation
from fedopt.engine.executors.ray.slot import to_arrays, to_vectors
from fedopt.engine.executors.ray.slots import SlotHandle, Slots
from fedopt.engine.executors.ray.user_code import runtime_env
from fedopt.engine.problem import Problem
from fedopt.engine.worker import ClientJob, Job
from fedopt.errors import FedoptError, ModelError, WorkerError, one_line
from fedopt.files import Log, no_log

_PIECES_PER_SLOT = 4  # that may be running or unused
_SECONDS_BETWEEN_CHECKS = 0.2  # for stragglers and new slots


class RayExecutor:
    """Runs jobs on `workers` slots of the cluster at `address`, by default on all of its cores.

    Without an address, a cluster is started in this process. With a `device`, a slot trains the clients of a
    block at once on it and reserves `gpus` GPUs.
    """

    fallback_reason = ""

    def __init__(
        self,
        workers: int | None,
        address: str | None = None,
        device: str | None = None,
        gpus: float = 0.0,
    ) -> None:
        self._workers, self._address = workers, address
        self._device, self._gpus = device, gpus
        self._connection = ExitStack()
        self._slots: Slots | None = None
        self._broadcasts = 0
        self._log: Log = no_log

    @property
    def is_started(self) -> bool:
        """True: a run that asks for a cluster uses it, even if it is small."""
        return True

    def report_to(self, log: Log) -> None:
        self._log = log
        if self._slots is not None:
            self._slots.log = log

    def start(self) -> None:
        """Connect to the cluster, or start one."""
        if self._slots is None:
            ray = import_ray()
            cores = self._workers or available_cores()
            code = runtime_env() if self._address else None
            self._connection.enter_context(connected(self._address, cores, code))
            self._slots = Slots(ray, self._workers, self._device, self._gpus)
            self._slots.log = self._log

    def load(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self.start()
        assert self._slots is not None
        ray = import_ray()
        try:
            reference = ray.put(problem)
        except Exception as error:
            raise ModelError(
                f"part of this problem cannot be sent to other processes ({one_line(error)}); define it at "
                "the top level of a module, or use executor='serial'",
                what="problem",
            ) from error
        self._returned = len(problem.algorithm().returns)
        self._local, self._split = problem.local, federation.train
        self._training_times, self._evaluation_times = PieceTimes(), PieceTimes()
        self._slots.load(reference, ray.put(sample), manifest_checksum(federation.source))

    def train(
        self, jobs: Sequence[ClientJob], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[BlockResult]:
        steps = [self._local.planned_steps(int(self._split.sizes[job.client])) for job in jobs]
        slots = self._refresh().ready
        blocks = split_blocks(jobs, steps) if self._device else split_cohort(jobs, steps, slots)
        pieces = [piece for block in blocks for piece in block]
        answers = self._run(pieces, sent, kept, self._training_times)
        for block in blocks:
            if block[0].is_block:
                for answer in next(answers):
                    kept_vectors = {client: to_vectors(arrays) for client, arrays in answer.kept.items()}
                    yield answer._replace(kept=kept_vectors)
                continue
            result = BlockResult([], BlockSum(), {})
            for _ in block:
                [(report, arrays)] = next(answers)
                add_client(result, report, to_vectors(arrays), self._returned)
            yield result

    def map(
        self, jobs: Sequence[Job], sent: tuple[Vector, ...], kept: Kept = nothing_kept
    ) -> Iterator[tuple[Any, tuple[Vector, ...]]]:
        pieces = split_evaluation(jobs, self._refresh().ready)
        for answer in self._run(pieces, sent, kept, self._evaluation_times):
            for reply, arrays in answer:
                yield reply, to_vectors(arrays)

    def close(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        self._connection.close()

    def _refresh(self) -> Slots:
        """Use nodes that have joined, and wait for a slot if all have been lost."""
        assert self._slots is not None
        self._slots.use_new_nodes()
        self._slots.poll()
        if not self._slots.ready:
            self._slots.await_one()
        return self._slots

    def _run(
        self, pieces: Sequence[Piece], sent: tuple[Vector, ...], kept: Kept, times: PieceTimes
    ) -> Iterator[Any]:
        """Run pieces on the slots and yield their answers in order."""
        ray, slots = import_ray(), self._slots
        assert slots is not None
        references = [ray.put(array) for array in to_arrays(sent)]
        self._broadcasts += 1
        attempts = Attempts(pieces, _PIECES_PER_SLOT * slots.ready, times)

        def dispatch() -> None:
            for handle in slots.handles:
                position = attempts.start(handle.number, time.monotonic()) if handle.is_idle else None
                if position is not None:
                    self._send(handle, pieces[position], kept, references)
                    handle.attempts = attempts

        for _ in pieces:
            dispatch()
            while not attempts.has_answer():
                self._collect(attempts, pieces)
                dispatch()
            answer = attempts.take()
            if isinstance(answer, FedoptError):
                raise answer
            yield answer

    def _send(self, handle: SlotHandle, piece: Piece, kept: Kept, references: Sequence[Any]) -> None:
        rows = {job.client: kept(job.client) for job in piece.jobs if isinstance(job, ClientJob)}
        arrays = {client: to_arrays(row) for client, row in rows.items() if row is not None}
        method = handle.actor.train_block if piece.is_block else handle.actor.run
        handle.task = method.remote(piece.jobs, arrays, self._broadcasts, *references)

    def _collect(self, attempts: Attempts, pieces: Sequence[Piece]) -> None:
        """Wait for slots and record their answers. Forget slots that have died."""
        ray, slots = import_ray(), self._slots
        assert slots is not None
        slots.use_new_nodes()
        slots.poll()
        if not slots.ready:  # other slots may never load: their CPUs may be used by other jobs
            slots.await_one()
            return
        running = {handle.task: handle for handle in slots.handles if handle.task is not None}
        if not running:
            return
        done, _ = ray.wait(list(running), timeout=_SECONDS_BETWEEN_CHECKS)
        for task in done:
            handle = running[task]
            belongs, handle.task = handle.attempts is attempts, None
            try:
                answer = ray.get(task)
            except ray.exceptions.RayTaskError as error:
                answer = WorkerError(f"a worker on node {handle.node.name} failed: {describe_failure(error)}")
                answer.__cause__ = error
            except ray.exceptions.RayError:  # the actor, its node or its result is lost
                slots.remove(handle)
                fatal = attempts.lose(handle.number) if belongs else None
                slots.log(f"a worker on node {handle.node.name} of the Ray cluster was lost")
                if fatal is not None:
                    raise self._repeated_death(pieces[fatal]) from None
                continue
            if belongs:
                attempts.finish(handle.number, answer, time.monotonic())

    def _repeated_death(self, piece: Piece) -> WorkerError:
        job = piece.jobs[0]
        client = self._split.ids[job.client] if isinstance(job, ClientJob) else None
        round = job.round.t + 1 if isinstance(job, ClientJob) else None
        where = "an evaluation" if client is None else f"client {client!r} in round {round}"
        text = f"a worker died {MAX_DEATHS} times on {where}, possibly out of memory"
        return WorkerError(f"{text}; use fewer workers per node", client=client, round=round)
