"""Train blocks of clients as stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.algorithms.base import Vector
from fedopt.algorithms.base import declares as declares_client
from fedopt.data import Arrays, Federation
from fedopt.engine.fast_paths import accepts_unequal_steps, trains_sparse_rows
from fedopt.engine.model_evaluation import EVAL_BATCH
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.batches import (
    ClientBatches,
    GatheredBatches,
    MaskedBatches,
    PreparedBatches,
    PreparedExamples,
)
from fedopt.engine.stacked.blocks import (
    BlockJobs,
    BlockPart,
    join_batches,
    stack_vectors,
    take_columns,
    tensor_like,
)
from fedopt.engine.stacked.inspection import LOSS_TOLERANCE, StackingPlan, inspect, largest_client
from fedopt.engine.stacked.model import StackedModel
from fedopt.engine.stacked.results import StackedBlock, collect_block, no_batches
from fedopt.engine.stacked.steps import StackedSteps
from fedopt.engine.stacked.work import StackedWork
from fedopt.engine.worker import ClientJob, ClientReport, Job, Worker
from fedopt.errors import CompileError, one_line
from fedopt.models.capabilities import declares, has_gradient_hooks
from fedopt.models.flat import aligned
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.base import Prepare
from fedopt.tasks.batch import Batch, map_tensors
from fedopt.tasks.per_example import is_per_example

MAX_FLOATS = 1 << 28  # 1 GiB: limit for all clients of a stack together
_MAX_CLIENTS = {
    "cpu": 32
}  # of a stack, by device; more save little time and leave fewer blocks to distribute
_MAX_CLIENTS_ELSEWHERE = 256
_MAX_COLUMNS = 50  # of a stack with blocks of several runs; more do not fit into the processor's cache
_VECTORS_PER_CLIENT = 8  # x_i, its gradient, copies of both, and the vectors of the algorithm
_REASONS = {
    "each": "the loss of an example depends on the other examples of its batch",
    "mean": "the loss of a batch is not the mean of the losses of its examples",
}


class NotStackable(Exception):
    """The clients of a block must be trained one after the other. The message is the reason."""


class StackedWorker(Worker):
    """A worker that trains blocks of clients on a device. It also runs the jobs of a plain worker.

    Args:
        compiles: whether the step is compiled to machine code.
        floats: the memory limit of a stack, in numbers.
    """

    def __init__(
        self,
        problem: Problem,
        federation: Federation,
        sample: Arrays,
        device: str = "cpu",
        compiles: bool = False,
        floats: int = MAX_FLOATS,
    ) -> None:
        on_device = replace(
            problem,
            model=partial(_model_on, device, problem.model),
            prepare=partial(_batch_on, device, problem.prepare),
        )
        super().__init__(problem if device == "cpu" else on_device, federation, sample)
        is_own = type(self.flat.module).__module__.startswith("fedopt.")
        if is_own and is_per_example(problem.loss):  # otherwise the sum may depend on the batches
            self.evaluation_batch = 5 * EVAL_BATCH  # small models spend most of the time on the calls
        self.device = device
        self._compiles = compiles
        self._floats = floats
        self._problem = problem  # its batches are on the CPU
        self._group_sizes: dict[int, int] = {}  # blocks of a stack, by the columns of a block

    @cached_property
    def plan(self) -> StackingPlan:
        """How clients are stacked. The plan depends on the problem only."""
        try:
            reason = self._first_obstacle()
            if reason:
                return StackingPlan(reason)
            arrays, model = self.federation.train.client(largest_client(self.federation.train)), self._model
        except Exception as error:  # a client that fails reports it, if it is sampled
            return StackingPlan(one_line(error))
        plan = inspect(self._problem, model, arrays)
        if self._compiles and not plan.reason:
            if plan.row_losses == "batch":
                return StackingPlan("batches of different size cannot be padded, so the step is not compiled")
            if not plan.is_traced:
                return StackingPlan("the model has too many operations to be compiled")
        return plan

    def _first_obstacle(self) -> str:
        model = self.flat.module
        if has_gradient_hooks(model):
            return "the model has gradient hooks on its parameters"
        if self.flat.statistics is not None:
            return "clients update the running statistics of normalization layers"
        if not declares_client(self.algorithm.client, "coordinate_wise"):
            return "the algorithm's client is not one of this package"
        if trains_sparse_rows(self.algorithm, self.problem, model):
            return "each client trains only the rows of the model that its examples use"
        if not self._accepts_unequal_steps and not self.federation.train.knows_sizes:
            return "the algorithm needs clients with equal numbers of steps, and these are not known"
        return ""

    @cached_property
    def _model(self) -> StackedModel:
        return StackedModel(self._problem, self.device, separate_updates=self._compiles)

    @cached_property
    def _steps(self) -> StackedSteps:
        return StackedSteps(self._model, traces=self.plan.is_traced, compiles=self._compiles)

    @cached_property
    def _accepts_unequal_steps(self) -> bool:
        return accepts_unequal_steps(self.algorithm)

    @cached_property
    def rows(self) -> int:
        """The number of rows to which batches are padded."""
        size, split = self.problem.local.batch_size, self.federation.train
        return min(size, int(split.sizes.max())) if split.knows_sizes else size

    @cached_property
    def _prepared(self) -> PreparedExamples | None:
        if not (self.plan.prepares_rows and self.federation.train.knows_sizes):
            return None
        return PreparedExamples(self._problem, self.federation.train)

    def stack_size(self) -> int:
        """Return how many clients of a run are trained at once. It depends on the problem only."""
        return self._limit_columns(_MAX_CLIENTS.get(self.device, _MAX_CLIENTS_ELSEWHERE))

    def _limit_columns(self, most: int) -> int:
        """Return the largest number of columns up to `most` that fits into the memory limit."""
        return min(max(self._floats // self._floats_per_client, 1), most)

    @cached_property
    def _floats_per_client(self) -> int:
        plan, largest = self.plan, int(self.federation.train.sizes.max())
        steps = self.problem.local.planned_steps(largest)
        per_example = plan.saved_floats + steps * plan.example_floats
        return self.rows * per_example + _VECTORS_PER_CLIENT * self.flat.d

    def blocks(self, jobs: Sequence[ClientJob]) -> list[tuple[Sequence[ClientJob], int]]:
        """Divide jobs into blocks of equal size. Return the jobs and the number of columns of each stack.

        All stacks of a round have the same number of columns, so one compiled step serves them all.
        """
        runs = [jobs] if self._accepts_unequal_steps else self._equal_steps(jobs)
        blocks: list[tuple[Sequence[ClientJob], int]] = []
        for run in runs:
            count = -(-len(run) // self.stack_size())
            size = -(-len(run) // count)
            blocks += [(run[start : start + size], size) for start in range(0, len(run), size)]
        return blocks

    def _group_blocks(
        self, blocks: Sequence[BlockJobs], positions: Sequence[int]
    ) -> list[tuple[list[int], int]]:
        """Divide the blocks at `positions` into stacks. Return the positions and the columns of each stack.

        Stacks keep their size when runs end, because a compiled step has a fixed number of columns.
        """
        by_columns: dict[int, list[int]] = {}
        for position in positions:
            by_columns.setdefault(blocks[position].columns, []).append(position)
        groups = []
        for columns, own in by_columns.items():
            most = min(max(self._limit_columns(_MAX_COLUMNS) // columns, 1), len(own))
            size = self._group_sizes[columns] = max(self._group_sizes.get(columns, 1), most)
            groups += [(own[start : start + size], size * columns) for start in range(0, len(own), size)]
        return groups

    def _equal_steps(self, jobs: Sequence[ClientJob]) -> list[Sequence[ClientJob]]:
        """Divide jobs into consecutive clients with the same number of steps."""
        sizes, local = self.federation.train.sizes, self.problem.local
        groups = groupby(jobs, key=lambda job: local.planned_steps(int(sizes[job.client])))
        return [list(group) for _, group in groups]

    def train_stack(
        self,
        jobs: Sequence[ClientJob],
        columns: int,
        sent: tuple[Vector, ...],
        kept: Sequence[tuple[Vector, ...] | None],
    ) -> StackedBlock:
        """Train the clients of a block. Raise `NotStackable` if that fails."""
        return self.train_blocks([BlockJobs(self.problem.seed, jobs, columns, sent, kept)])[0]

    def train_blocks(self, blocks: Sequence[BlockJobs]) -> list[StackedBlock]:
        """Train blocks of one or several runs in as few stacks as possible.

        The result of a block does not depend on the others. Raise `NotStackable` if training fails.
        """
        results: dict[int, StackedBlock] = {}
        if not self._is_checked:
            first = blocks[0].jobs[0]
            with self._located(first):
                self.check_model(first, aligned(blocks[0].sent[0]), *self.client_data(first.client))
        self._evaluation = 0
        try:
            with torch.no_grad(), self.problem.profile("client", blocks[0].jobs[0].round.t):
                parts = self._read_parts(blocks)
                trained = [i for i, part in enumerate(parts) if part.chosen]
                for group, columns in self._group_blocks(blocks, trained):
                    pairs = [(blocks[i], parts[i]) for i in group]
                    results |= dict(zip(group, self._train_stack(pairs, columns), strict=True))
        except (NotStackable, CompileError):  # training without the compiler would give another result
            raise
        except Exception as error:  # training one client names the client of an error
            raise NotStackable(one_line(error)) from error
        return [results.get(i) or no_batches(block.jobs) for i, block in enumerate(blocks)]

    def _train_stack(self, pairs: Sequence[tuple[BlockJobs, BlockPart]], columns: int) -> list[StackedBlock]:
        """Train blocks as one stack with this number of columns."""
        blocks = [block for block, _ in pairs]
        sizes = [block.columns for block in blocks]
        training = join_batches([part.training for _, part in pairs], columns)
        rates = [block.jobs[0].round.eta_l for block in blocks for _ in range(block.columns)]
        x = blocks[0].sent[0].to(self.device)
        work = StackedWork(
            blocks[0].jobs[0].round,
            tensor_like(rates + rates[:1] * (columns - len(rates)), x)[:, None],
            training,
            self._steps,
            [kept for block, part in pairs for kept in part.kept(block)],
            lambda: join_batches([part.full for _, part in pairs], columns),
        )
        stacks = [
            stack_vectors([v.to(self.device) for v in vectors], sizes, columns)
            for vectors in zip(*(block.sent for block in blocks), strict=True)
        ]
        result = self.algorithm.client(work, *stacks)
        if not work.largest_error() <= LOSS_TOLERANCE:
            raise NotStackable(_REASONS[self.plan.row_losses])
        counts, losses = training.counts.cpu().numpy(), work.loss_sums()
        results, start = [], 0
        for block, part in pairs:
            own = slice(start, start + block.columns)
            vectors = take_columns(result, own)
            results.append(
                collect_block(block, part, counts[:, own], losses[own], vectors, self.problem.weighting)
            )
            start = own.stop
        return results

    def _read_parts(self, blocks: Sequence[BlockJobs]) -> list[BlockPart]:
        """Read the batches of each block. Blocks of the same clients, round and seed share them."""
        parts: dict[tuple[Any, ...], BlockPart] = {}
        chosen = []
        for block in blocks:
            clients = tuple(job.client for job in block.jobs)
            key = block.seed, block.jobs[0].round.t, clients
            if key not in parts:
                parts[key] = self._read_part(block)
            chosen.append(parts[key])
        return chosen

    def _read_part(self, block: BlockJobs) -> BlockPart:
        problem = (
            self._problem if block.seed == self._problem.seed else replace(self._problem, seed=block.seed)
        )
        batches = self._batches(problem, block.jobs)
        ids = [self.federation.train.ids[job.client] for job in block.jobs]
        t, dtype = block.jobs[0].round.t, block.sent[0].dtype
        masked = MaskedBatches(problem, ids, t, batches, self._model.masks, self.device, dtype)
        chosen = [i for i, steps in enumerate(batches.steps) if steps]
        return BlockPart(batches, masked, chosen, block.columns)

    def _batches(self, problem: Problem, jobs: Sequence[ClientJob]) -> ClientBatches:
        split, prepared = self.federation.train, self._prepared
        if prepared is not None:
            if all(prepared.fill(job.client) for job in jobs):
                return GatheredBatches(problem, split, jobs, prepared, self.rows)
            self._prepared = None
        pads_inputs = declares(self.flat.module, "zero_padded_inputs")
        return PreparedBatches(problem, self.flat, split, jobs, self.rows, pads_inputs)

    def run(
        self,
        job: Job,
        sent: tuple[Vector, ...],
        kept: tuple[Vector, ...] | None,
        output: Vector | None = None,
    ) -> tuple[Any, tuple[Vector, ...]]:
        """Run the job of a plain worker. The vectors of its result are on the CPU."""
        if self.device == "cpu":
            return super().run(job, sent, kept, output)
        moved = tuple(v.to(self.device) for v in sent)
        report, vectors = super().run(job, moved, kept and tuple(v.to(self.device) for v in kept))
        if isinstance(report, ClientReport) and report.rows is not None:
            report = report._replace(rows=report.rows._replace(rows=report.rows.rows.cpu()))
        return report, tuple(v.cpu() for v in vectors)

    def client_data(self, client: int) -> tuple[Arrays, SparseRows | None]:
        arrays, rows = super().client_data(client)
        return arrays, rows and rows._replace(rows=rows.rows.to(self.device))


def _model_on(device: str, build: Callable[[], nn.Module]) -> nn.Module:
    return build().to(device)


def _batch_on(
    device: str, prepare: Prepare, examples: tuple[Tensor, ...], rng: np.random.Generator | None
) -> Batch:
    def to_device(part: Tensor) -> Tensor:
        return part.to(device)

    inputs, targets = prepare(examples, rng)
    return map_tensors(to_device, inputs), map_tensors(to_device, targets)
