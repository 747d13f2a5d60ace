"""Train blocks of clients as stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays, Federation
from fedopt.engine.aggregate import BlockSum
from fedopt.engine.fast_paths import CLIENT_ON_SPARSE_ROWS, IN_PLACE_SGD, STACKED_CLIENTS, UNEQUAL_STEPS
from fedopt.engine.problem import Problem
from fedopt.engine.stacked.batches import (
    ClientBatches,
    GatheredBatches,
    MaskedBatches,
    PreparedBatches,
    PreparedExamples,
)
from fedopt.engine.stacked.inspection import StackingPlan, inspect, largest_client
from fedopt.engine.stacked.model import StackedModel
from fedopt.engine.stacked.results import StackedBlock, collect_block, unchanged
from fedopt.engine.stacked.steps import StackedSteps
from fedopt.engine.stacked.work import StackedWork
from fedopt.engine.worker import ClientJob, Worker, one_line
from fedopt.models.capabilities import declares, has_gradient_hooks
from fedopt.models.sparse_rows import SparseRows
from fedopt.tasks.base import Prepare
from fedopt.tasks.batch import Batch, map_tensors

MAX_FLOATS = 1 << 28  # 1 GiB: limit for all clients of a stack together
_MAX_CLIENTS = {
    "cpu": 32
}  # of a stack, by device; more save little time and leave fewer blocks to distribute
_MAX_CLIENTS_ELSEWHERE = 256
_VECTORS_PER_CLIENT = 8  # x_i, its gradient, copies of both, and the vectors of the algorithm
_LOSS_TOLERANCE = 1e-4  # relative, between the loss of a batch and the mean loss of its rows


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
        self.device = device
        self._compiles = compiles
        self._floats = floats
        self._problem = problem  # its batches are on the CPU

    @cached_property
    def plan(self) -> StackingPlan:
        """How clients are stacked. The plan depends on the problem only."""
        reason = self._first_obstacle()
        if reason:
            return StackingPlan(reason)
        try:
            arrays = self.federation.train.client(largest_client(self.federation.train))
        except Exception as error:  # the client that fails reports it, if it is sampled
            return StackingPlan(one_line(error))
        plan = inspect(self._problem, self._model, arrays)
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
        if not STACKED_CLIENTS.applies(self.algorithm):
            return "the algorithm's client is not one of this package"
        if CLIENT_ON_SPARSE_ROWS.applies(self.algorithm, self.problem, model):
            return "each client trains only the rows of the model that its examples use"
        if not self._accepts_unequal_steps and not self.federation.train.knows_sizes:
            return "the algorithm needs clients with equal numbers of steps, and these are not known"
        return ""

    @cached_property
    def _model(self) -> StackedModel:
        return StackedModel(self._problem, self.device)

    @cached_property
    def _steps(self) -> StackedSteps:
        return StackedSteps(self._model, traces=self.plan.is_traced, compiles=self._compiles)

    @cached_property
    def _accepts_unequal_steps(self) -> bool:
        return UNEQUAL_STEPS.applies(self.algorithm)

    @cached_property
    def _rows(self) -> int:
        """The number of rows to which batches are padded."""
        size, split = self.problem.local.batch_size, self.federation.train
        return min(size, int(split.sizes.max())) if split.knows_sizes else size

    @cached_property
    def _prepared(self) -> PreparedExamples | None:
        if not (self.plan.prepares_rows and self.federation.train.knows_sizes):
            return None
        return PreparedExamples(self._problem, self.federation.train)

    def stack_size(self) -> int:
        """Return how many clients are trained at once. It depends on the problem only."""
        plan, largest = self.plan, int(self.federation.train.sizes.max())
        steps = self.problem.local.planned_steps(largest)
        per_client = self._rows * (plan.saved_floats + steps * plan.example_floats)
        per_client += _VECTORS_PER_CLIENT * self.flat.d
        limit = _MAX_CLIENTS.get(self.device, _MAX_CLIENTS_ELSEWHERE)
        return min(max(self._floats // per_client, 1), limit)

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
        try:
            with torch.no_grad(), self.problem.profile("client", jobs[0].round.t):
                return self._train_stack(jobs, columns, sent, kept)
        except NotStackable:
            raise
        except Exception as error:  # training one client names the client of an error
            raise NotStackable(one_line(error)) from error

    def _train_stack(
        self,
        jobs: Sequence[ClientJob],
        columns: int,
        sent: tuple[Vector, ...],
        kept: Sequence[tuple[Vector, ...] | None],
    ) -> StackedBlock:
        local, x, t = self.problem.local, sent[0].to(self.device), jobs[0].round.t
        batches = self._batches(jobs)
        chosen = [i for i, n in enumerate(batches.examples) if local.planned_steps(n)]
        if not chosen:  # no client has enough examples for a batch
            return StackedBlock([unchanged(job.client) for job in jobs], BlockSum(), {})
        ids = [self.federation.train.ids[job.client] for job in jobs]
        masked = MaskedBatches(self._problem, ids, t, batches, self._model.masks, self.device, x.dtype)
        training = masked.training(chosen, columns)
        work = StackedWork(
            jobs[0].round,
            training,
            self._steps.gradient,
            [kept[i] for i in chosen],
            partial(masked.full, chosen, columns),
            x,
        )
        stacks = [v.to(self.device).expand(columns, -1) for v in sent]
        if self._steps.pads_batches and IN_PLACE_SGD.applies(self.algorithm, self.problem, self.flat.module):
            result = work.sgd(stacks[0], self._steps.sgd_step)
        else:
            result = self.algorithm.client(work, *stacks)
        if self.plan.row_losses == "mean" and not work.largest_error() <= _LOSS_TOLERANCE:
            raise NotStackable("the loss of a batch is not the mean of the losses of its examples")
        weighting = self.problem.weighting
        return collect_block(jobs, chosen, batches, training, work.loss_sums(), result, weighting)

    def _batches(self, jobs: Sequence[ClientJob]) -> ClientBatches:
        split, prepared = self.federation.train, self._prepared
        if prepared is not None:
            if all(prepared.fill(job.client) for job in jobs):
                return GatheredBatches(self._problem, split, jobs, prepared, self._rows)
            self._prepared = None
        pads_inputs = declares(self.flat.module, "zero_padded_inputs")
        return PreparedBatches(self._problem, self.flat, split, jobs, self._rows, pads_inputs)

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
