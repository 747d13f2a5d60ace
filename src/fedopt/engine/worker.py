"""Train one client, or evaluate the model on some examples. All executors run this code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import torch

from fedopt.algorithms.base import ClientResult, Round, Vector
from fedopt.algorithms.state import all_finite
from fedopt.data import Arrays, Federation
from fedopt.engine.client import ClientWork
from fedopt.engine.fast_paths import trains_sparse_rows
from fedopt.engine.hidden_state import check_passes
from fedopt.engine.initial_model import build_module
from fedopt.engine.mismatch import compare_examples
from fedopt.engine.model_evaluation import (
    EVAL_BATCH,
    EvaluationSums,
    evaluate_clients_together,
    evaluate_examples,
)
from fedopt.engine.problem import Problem, no_profile
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.engine.torch_state import seeded
from fedopt.errors import FedoptError, ModelError, WorkerError, one_line
from fedopt.models.capabilities import self_updating_layers
from fedopt.models.flat import Flat, aligned
from fedopt.models.sparse_rows import SparseRows


class ClientJob(NamedTuple):
    """Train the client at this position in this round."""

    round: Round
    client: int


class SampleJob(NamedTuple):
    """Evaluate the model on rows start to stop of the evaluation sample."""

    start: int
    stop: int
    evaluation: int = 0  # a number that all jobs of an evaluation share, and no other jobs; 0: none


class SplitJob(NamedTuple):
    """Evaluate the model on all examples of one client of a split."""

    split: str
    client: int
    evaluation: int = 0


class ClientsJob(NamedTuple):
    """Evaluate the model on several clients of a split, whose examples share batches."""

    split: str
    clients: tuple[int, ...]  # in ascending order
    evaluation: int = 0


EvaluationJob = SampleJob | SplitJob | ClientsJob
Job = ClientJob | EvaluationJob


class BlockJob(NamedTuple):
    """Train several clients as one stack with this number of columns."""

    jobs: tuple[ClientJob, ...]
    columns: int
    has_kept: tuple[bool, ...] = ()  # whether each client has kept vectors, which are sent with the job


class ClientReport(NamedTuple):
    """Statistics of one trained client. Its vectors are passed separately."""

    client: int
    weight: float
    steps: int  # planned steps; 0 if the client has fewer examples than a batch
    examples: int
    loss: float  # sum over the processed examples
    finite: bool  # whether the loss and all returned and kept vectors are finite
    rows: SparseRows | None = None  # the rows of the model that its vectors hold; None: all of them


JobResult = ClientReport | EvaluationSums | tuple[EvaluationSums, ...]


class Worker:
    """Holds one model and the data of one problem, and runs jobs one after the other."""

    evaluation_batch = EVAL_BATCH  # examples that are evaluated at once

    def __init__(self, problem: Problem, federation: Federation, sample: Arrays) -> None:
        self.flat = Flat(build_module(problem), problem.buffers)
        self.problem = problem
        self.federation = federation
        self.algorithm = problem.algorithm()
        self.sample = sample
        self._layers = [] if problem.penalty is not None else self_updating_layers(self.flat.module)
        # Elsewhere than on the CPU, equal passes may differ in bits.
        self._is_checked = self.flat.parameters[0].device.type != "cpu"
        self._evaluation = 0  # the evaluation that the model is prepared for

    def run(
        self,
        job: Job,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        output: Vector | None = None,
    ) -> tuple[JobResult, tuple[Vector, ...]]:
        """Return the result of a job and, for a client, the vectors it returns followed by those it keeps.

        `output` is an optional preallocated buffer for the first vector, which can save a copy.
        """
        with self._located(job):
            return self._run(job, tuple(aligned(v) for v in sent), kept, output)

    @contextmanager
    def _located(self, job: Job) -> Iterator[None]:
        """Name the job in errors."""
        try:
            yield
        except FedoptError as error:
            raise self._locate(job, error) from error.__cause__
        except Exception as error:  # in the user's model, loss, data or algorithm
            raise self._describe(job, error) from error

    def _run(
        self, job: Job, sent: tuple[Vector, ...], kept: tuple[Vector, ...] | None, output: Vector | None
    ) -> tuple[JobResult, tuple[Vector, ...]]:
        if isinstance(job, ClientJob):
            return self._train(job, sent, kept, output)
        received = sent[: 1 if self.flat.statistics is None else 2]
        if isinstance(job, ClientsJob):
            return self._evaluate_clients(job, *received), ()
        return self._evaluate(job, *received), ()

    def _locate(self, job: Job, error: FedoptError) -> FedoptError:
        """Name the client whose labels do not match the model."""
        if isinstance(error, ModelError) and error.what == "outputs":
            error.client, error.round, where = self._place(job)
            error.args = (f"{where}: {self._data_difference(job) or error}",)
        return error

    def _data_difference(self, job: Job) -> str:
        """Describe how the examples of a job differ in form from the other split; "" if they do not."""
        if isinstance(job, SampleJob | ClientsJob):
            return compare_examples(self.sample, self.federation.train.client(0), "the first client")
        split = self.federation.train if isinstance(job, ClientJob) else getattr(self.federation, job.split)
        return compare_examples(split.client(job.client), self.sample, "the test set")

    def _place(self, job: Job) -> tuple[str | None, int | None, str]:
        """Return the client and the round of a job, and a description of both."""
        if isinstance(job, ClientJob):
            client, round = self.federation.train.ids[job.client], job.round.t + 1
            return client, round, f"client {client!r} in round {round}"
        if isinstance(job, SplitJob):
            client = getattr(self.federation, job.split).ids[job.client]
            return client, None, f"evaluation of client {client!r}"
        return None, None, "evaluation"

    def _describe(self, job: Job, error: Exception) -> WorkerError:
        """Name the client and the round of an error in one line. The traceback is a note."""
        client, round, where = self._place(job)
        remedy = ""
        if "Expected more than 1 value per channel" in str(error):
            remedy = "; batch normalization needs two examples: set client.drop_last or client.batch_size"
        if "same dtype" in str(error) and any(a.dtype.kind in "iu" for a in self.sample[:-1]):
            remedy = "; integer inputs stay integers, so convert them to float32 if the model needs it"
        if any(part in str(error) for part in ("a (0)", "b (0)", "sum exactly to 0")):
            remedy = "; a vector that `descend` or `delta` has taken is empty: use the one that it returned"
        difference = self._data_difference(job)
        if difference:
            remedy = f"; {difference}"
        failure = WorkerError(f"{where}: {one_line(error)}{remedy}", client=client, round=round)
        failure.add_note(traceback.format_exc())
        return failure

    def _train(
        self,
        job: ClientJob,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        output: Vector | None,
    ) -> tuple[ClientReport, tuple[Vector, ...]]:
        client = self.federation.train.ids[job.client]
        arrays, rows = self.client_data(job.client)
        work = ClientWork(
            self.problem, self.flat, arrays, client, job.round, kept, rows, output, self._layers
        )
        if work.steps == 0:  # fewer examples than a batch, and short batches are dropped
            return ClientReport(job.client, 0.0, 0, 0, 0.0, True), ()
        self.check_model(job, sent[0], arrays, rows)
        if rows is not None:
            sent = tuple(rows.take(v) for v in sent)
        work.received = sent[0]
        self.flat.train()
        self._evaluation = 0
        versions = [v._version for v in sent]
        profile = self.problem.profile("client", job.round.t)
        with seeded(self.problem.seed, "client", job.round.t, client), profile:
            result = self.algorithm.client(work, *sent)
        self._check_result(result, sent[0])
        if versions != [v._version for v in sent]:
            raise ModelError(
                "a client changed a vector it received in place; write x_i = x_i - ..., not x_i -= ...",
                what="client",
                client=client,
                round=job.round.t + 1,
            )
        self.flat.check_tensors()
        vectors = result.returns + result.keeps
        _, examples, loss = work.statistics()
        finite = isfinite(loss) and all(map(all_finite, vectors))
        return ClientReport(job.client, work.weight(), work.steps, examples, loss, finite, rows), vectors

    def client_data(self, client: int) -> tuple[Arrays, SparseRows | None]:
        """Return a client's examples and, if they are trained on sparse rows, these rows."""
        arrays = self.federation.train.client(client)
        if not trains_sparse_rows(self.algorithm, self.problem, self.flat.module):
            return arrays, None
        assert self.problem.touched is not None
        height, width = self.flat.shapes[0]
        rows, renumbered = self.problem.touched(arrays, height)
        return renumbered, SparseRows(torch.from_numpy(rows), height, width, self.flat.d - height * width)

    def _check_result(self, result: Any, x: Vector) -> None:
        """Check a result against the algorithm's declaration, which shared memory and byte counts rely on."""
        algorithm = self.algorithm
        if not isinstance(result, ClientResult):
            raise ModelError(
                f"a client must return a ClientResult, not a {type(result).__name__}", what="client"
            )
        counts = len(result.returns), len(result.keeps)
        if counts != (len(algorithm.returns), len(algorithm.keeps)):
            raise ModelError(
                f"the algorithm declares returns={algorithm.returns} and keeps={algorithm.keeps}, but its "
                f"client returned {counts[0]} and {counts[1]} vectors",
                what="client",
            )
        names = algorithm.returns + algorithm.keeps
        for name, vector in zip(names, result.returns + result.keeps, strict=True):
            if name != STATISTICS and (vector.shape != x.shape or vector.dtype != x.dtype):
                raise ModelError(
                    f"the vectors of a client must be like x, {tuple(x.shape)} {x.dtype}; one is "
                    f"{tuple(vector.shape)} {vector.dtype}",
                    what="client",
                )

    def _evaluate_clients(
        self, job: ClientsJob, x: Vector, statistics: Vector | None = None
    ) -> tuple[EvaluationSums, ...]:
        """Return the sums of each client. Clients are evaluated one by one if they cannot share batches."""
        try:
            results: tuple[EvaluationSums, ...] | None = self._evaluate(job, x, statistics)
        except Exception:  # evaluating one by one reports the client
            results, self._evaluation = None, 0
        if results is None:
            sent = (x,) if statistics is None else (x, statistics)
            single = [
                self.run(SplitJob(job.split, client, job.evaluation), sent, None)[0] for client in job.clients
            ]
            results = tuple(result for result in single if isinstance(result, EvaluationSums))
        return results

    def _evaluate(self, job: EvaluationJob, x: Vector, statistics: Vector | None = None) -> Any:
        """Return the sums over the examples of a job, or for several clients those of each."""
        flat, sizes = self.flat, None
        if isinstance(job, SampleJob):
            arrays = tuple(a[job.start : job.stop] for a in self.sample)
        elif isinstance(job, SplitJob):
            arrays = getattr(self.federation, job.split).client(job.client)
        else:
            arrays, sizes = getattr(self.federation, job.split).read_clients(job.clients)
        is_first = not job.evaluation or job.evaluation != self._evaluation
        if is_first:  # copies and checks by value take time
            flat.train()  # a model may keep what it computes in evaluation until it is trained
            flat.bind(x.clone())
        flat.evaluate(statistics)
        versions = flat.versions()
        with seeded("evaluation", *map(str, job[:-1])):
            arguments = self.problem, flat.module, arrays
            if sizes is None:
                sums: Any = evaluate_examples(*arguments, self.evaluation_batch)
            else:
                sums = evaluate_clients_together(*arguments, sizes, self.evaluation_batch)
        flat.check_parameters(versions, x if is_first else None)
        flat.check_tensors()
        if is_first and self.problem.fixed is not None:
            self.problem.fixed.check()
        self._evaluation = job.evaluation
        return sums

    def check_model(self, job: ClientJob, x: Vector, arrays: Arrays, rows: SparseRows | None) -> None:
        """Refuse a model with hidden state, before the first client is trained."""
        if self._is_checked or self.problem.local.planned_steps(len(arrays[0])) == 0:
            return
        client, problem = self.federation.train.ids[job.client], replace(self.problem, profile=no_profile)

        def work(flat: Flat) -> ClientWork:
            return ClientWork(problem, flat, arrays, client, job.round, None, rows)

        check_passes(problem, self.flat, x if rows is None else rows.take(x), rows, work)
        self._is_checked = True
