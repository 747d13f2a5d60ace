"""Everything that is needed to train a client: the same in every process, without open files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor, nn

from fedopt.algorithms import Algorithm
from fedopt.data import Federation
from fedopt.engine.mismatch import explained_mismatch
from fedopt.errors import ModelError
from fedopt.models.fixed_state import FixedState
from fedopt.tasks.base import Loss, Metric, Prepare, Touched
from fedopt.tasks.batch import Nested, call_model

# Called with "client" around a client's training and with "pass" around each forward and backward pass;
# the second argument is the round.
Profile = Callable[[str, int], AbstractContextManager[object]]


def no_profile(section: str, t: int) -> AbstractContextManager[None]:
    """Measure nothing."""
    return nullcontext()


@dataclass(frozen=True)
class LocalWork:
    """The local work of a client in a round: E epochs or K steps over its batches, shuffled in each epoch."""

    batch_size: int
    epochs: int = 1
    steps: int | None = None  # K; None means whole epochs
    drop_last: bool = False

    def batches_per_epoch(self, examples: int) -> int:
        if self.drop_last:
            return examples // self.batch_size
        return -(-examples // self.batch_size)

    def planned_steps(self, examples: int) -> int:
        per_epoch = self.batches_per_epoch(examples)
        if per_epoch == 0:
            return 0
        return self.steps if self.steps is not None else self.epochs * per_epoch


@dataclass(frozen=True)
class Problem:
    """A task with its options and an algorithm, ready to be sent to a worker.

    If several processes are used, all functions must be importable by name.
    """

    federation: Callable[[], Federation]
    model: Callable[[], nn.Module]
    prepare: Prepare
    loss: Loss
    metrics: Mapping[str, Metric]
    algorithm: Callable[[], Algorithm]
    local: LocalWork
    seed: int
    reduction: str = "mean"
    weighting: str = "examples"
    buffers: str = "refuse"
    penalty: Callable[[nn.Module], Tensor] | None = None
    tokens: Callable[[tuple[Tensor, ...]], int] | None = None
    touched: Touched | None = None
    # Frozen parameters and buffers of the run; None: those of the module that each process builds.
    fixed: FixedState | None = field(default=None, compare=False)
    profile: Profile = no_profile  # set by benchmarks to measure where the time goes

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return next(iter(self.metrics), "loss")

    def losses(self, outputs: Nested, targets: Nested) -> Tensor:
        """Return the loss of each example, or their mean as a scalar."""
        with explained_mismatch(outputs, targets):
            losses = self.loss(outputs, targets)
        if not isinstance(losses, Tensor):
            raise ModelError(
                f"the loss returned a {type(losses).__name__}; it must return a tensor", what="loss"
            )
        return losses

    def objective(
        self,
        module: nn.Module,
        inputs: Nested,
        targets: Nested,
        examples: int | Tensor,
        mean_loss: Callable[[Nested, Nested], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the training objective f_i(x; b) on a batch of `examples`, and the batch's mean loss.

        `mean_loss` computes the mean loss from outputs and targets, by default the mean of the task's loss.
        """
        outputs = call_model(module, inputs)
        mean = mean_loss(outputs, targets) if mean_loss else self.losses(outputs, targets).mean()
        objective = mean * examples if self.reduction == "sum" else mean
        if self.penalty is not None:
            objective = objective + self.penalty(module)
        return objective, mean.detach()
