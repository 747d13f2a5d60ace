"""Models with hidden state, models that change their parameters, and models that draw random numbers.

Worker processes can import them. All compute the scores x @ w of a linear model, changed in one way.
"""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from own_clients import CLASSES, FEATURES
from torch import Tensor, nn

LIMIT = 1.15  # of a weight; local training of a client exceeds it, the initial weights do not


class Linear(nn.Module):
    """The scores x @ w, with a buffer and a frozen parameter that are both one."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, FEATURES * CLASSES).reshape(FEATURES, CLASSES))
        self.register_buffer("one", torch.ones(()))
        self.frozen = nn.Parameter(torch.ones(()), requires_grad=False)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w * self.one * self.frozen


# Hidden state.


class Counter(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 + 0.1 * self.calls)


class CounterInTraining(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(x) * (1 + 0.1 * self.calls)


class CounterInEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += not self.training
        return super().forward(x) if self.training else super().forward(x) * (1 + 0.1 * self.calls)


class Alternating(Linear):
    """Every other pass differs."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x if self.calls % 2 else 2 * x)


class AlternatingEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += not self.training
        return super().forward(x if self.training or self.calls % 2 else 2 * x)


class LastEvaluation(Linear):
    """Trains with the mean of the batch that was evaluated last."""

    mean: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.mean = x.mean(0)
            return super().forward(x)
        return super().forward(x - self.mean)


class TrainedFlag(Linear):
    """Evaluates in another way once it has been trained."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls or int(self.training)
        return super().forward(x) if self.training else super().forward(x) * (1 + self.calls)


class MovingAverage(Linear):
    """Batch normalisation by hand: an attribute is updated in training and used in evaluation."""

    mean: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return super().forward(x - x.mean(0))
        return super().forward(x - self.mean)


class FirstBatch(Linear):
    """Scales by the first batch that it sees."""

    scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = x.std()
        return super().forward(x / self.scale)


class FirstTrainingBatch(Linear):
    scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None and self.training:
            self.scale = x.std()
        return super().forward(x if self.scale is None else x / self.scale)


class EvaluatedFlag(Linear):
    """Evaluates in another way the second time."""

    def forward(self, x: Tensor) -> Tensor:
        before, self.calls = self.calls, self.calls or int(not self.training)
        return super().forward(x) if self.training else super().forward(x) * (1 + before)


class FirstWeights(Linear):
    """Remembers the weights that it sees first."""

    before: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.before is None:
            self.before = self.w.detach().clone()
        return super().forward(x) + x @ (self.w - self.before)


class Recurrent(Linear):
    """Carries a hidden state from batch to batch."""

    state: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.mean() + 0.5 * self.state
        self.state = hidden.detach()
        return super().forward(x) + hidden * torch.arange(CLASSES)


class Cache(Linear):
    """Remembers the output for each size of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.outputs.setdefault(len(x), 1 + x.mean())


class CacheOfInputs(Linear):
    """Remembers the output for each batch in evaluation, whatever the weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[bytes, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        key = x.numpy().tobytes() if type(x) is Tensor else b""
        return self.outputs.setdefault(key, super().forward(x))


class TorchGenerator(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn(x.shape, generator=self.generator))


class NumpyGenerator(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(1 + self.generator.random())


class PythonGenerator(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + self.generator.random())


class RareDraw(Linear):
    """Stochastic depth with a generator of its own: most passes skip nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x if self.training and self.generator.random() < 0.01 else x)


class UnseededFactory(Linear):
    """Every process builds another model."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = float(np.random.default_rng().uniform(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Reseeding(Linear):
    def forward(self, x: Tensor) -> Tensor:
        torch.seed()
        return super().forward(x + torch.rand(x.shape))


class Time(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + time.perf_counter_ns() % 1000 / 1000)


_passes = itertools.count(1)


class GlobalCounter(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + 0.1 * next(_passes))


class ClassCounter(Linear):
    built = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).built += 1
        self.scale = self.built

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class _Smoothing(nn.Module):
    """A loss with a counter."""

    calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(outputs, targets, label_smoothing=0.5 / self.calls)


# Buffers and frozen parameters that change.


class BufferInPlace(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.one += 0.1
        return super().forward(x)


class BufferReplaced(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.one = self.one + 0.1
        return super().forward(x)


class BufferInEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.one += 0.1
        return super().forward(x)


class BufferData(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.one.data += 0.1
        return super().forward(x)


class BufferDataReplaced(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.one.data = self.one.data + 0.1
        return super().forward(x)


class BufferDataInEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.one.data += 0.1
        return super().forward(x)


class FrozenData(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.frozen.data *= 0.9
        return super().forward(x)


class LateBuffer(Linear):
    """Changes a buffer after some passes, with values that no pass uses before the end."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 25:
            self.one.data += 0.1
        return super().forward(x)


class SpectralNorm(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.utils.parametrizations.spectral_norm(nn.Linear(FEATURES, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.inner(x))


# Parameters that change.


class MaxNorm(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, FEATURES, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.embedding(x[:, 0].abs().long() % CLASSES))


class Clamp(Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.w.clamp_(-LIMIT, LIMIT)
        return super().forward(x)


class ClampInEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            with torch.no_grad():
                self.w.clamp_(-LIMIT, LIMIT)
        return super().forward(x)


class LateClamp(Linear):
    """Changes nothing until a weight exceeds the limit."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if self.w.abs().max() > LIMIT:
                self.w.clamp_(-LIMIT, LIMIT)
        return super().forward(x)


class DataClamp(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.w.data.clamp_(-0.5, 0.5)
        return super().forward(x)


class LateDataClamp(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.w.data.clamp_(-LIMIT, LIMIT)
        return super().forward(x)


class DataCopyInTraining(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.w.data.copy_(torch.where(self.w.data.abs() > LIMIT, self.w.data.sign() * LIMIT, self.w.data))
        return super().forward(x)


class DataInEvaluation(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.w.data *= 0.9
        return super().forward(x)


class FailsOnLargeBatches(Linear):
    """Changes its weights in evaluation and then fails, if examples of several clients share a batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and len(x) > 12:
            self.w.data *= 0.9
            raise ValueError("too many examples")
        return super().forward(x)


class DataAssigned(Linear):
    """Replaces the memory of a parameter by a copy with the same values, which training would never reach."""

    def forward(self, x: Tensor) -> Tensor:
        self.w.data = self.w.data.clone()
        return super().forward(x)


class Replaced(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.w = nn.Parameter(self.w.detach().clone())
        return super().forward(x)


class TiedAnew(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(self.w.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        self.other = self.w
        return super().forward(x) + x @ self.other


class Loaded(Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.load_state_dict({name: 0.99 * value for name, value in self.state_dict().items()})
        return super().forward(x)


class FromVector(Linear):
    """Makes the parameters views of another vector with the same values."""

    def forward(self, x: Tensor) -> Tensor:
        trained = [self.w]
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(trained), trained)
        return super().forward(x)


class ChangedInBackward(Linear):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if out.requires_grad:
            out.register_hook(self._shrink)
        return out

    def _shrink(self, gradient: Tensor) -> None:
        self.w.detach().mul_(0.99)


# Models that are trained alike everywhere.


class NumpyNoise(Linear):
    """Draws from NumPy's and Python's global generators, also in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float(0.5 + np.random.rand() + random.random())  # noqa: NPY002


class TorchNoise(Linear):
    """Draws in evaluation, like a variational autoencoder."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.5 * torch.randn(x.shape))


class MonteCarloDropout(Linear):
    """Draws in evaluation only."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.training else F.dropout(x, 0.5, training=True))


class FunctionalDropout(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, self.training))


class DropoutLayer(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.dropout(x))


class SkippedLayer(Linear):
    """Stochastic depth, decided by Python's generator."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * 2 if self.training and random.random() < 0.5 else x)


class RandomFactory(Linear):
    """Builds an attribute from a global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1 + random.random() + float(np.random.rand())  # noqa: NPY002

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.scale)


class HarmlessCounter(Linear):
    """Counts its passes and keeps its last output, without an influence on later passes."""

    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = super().forward(x)
        return self.last


class LazyConstant(Linear):
    """Computes a constant in its first pass."""

    positions: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.positions is None:
            self.positions = torch.arange(FEATURES).cos()
        return super().forward(x + self.positions)


class InputInPlace(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(2))


class WeightNorm(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.inner(x))


class PrunedLayer(Linear):
    """Computes a weight before each pass, as an attribute that cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, FEATURES)
        nn.utils.prune.l1_unstructured(self.inner, "weight", 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.inner(x))


class BatchStatistics(Linear):
    """Normalises with the statistics of each batch, also in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class MergedInEvaluation(Linear):
    """Keeps a product of its weights from the first pass in evaluation until it is trained."""

    merged: Tensor | None = None

    def train(self, mode: bool = True) -> MergedInEvaluation:
        self.merged = None if mode else self.merged
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x @ (2 * self.w)
        if self.merged is None:
            self.merged = 2 * self.w
        return x @ self.merged


class ResetByMode(Linear):
    """Has state, but only since its mode was set, which the engine does for each client."""

    def train(self, mode: bool = True) -> ResetByMode:
        self.calls = 0
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) / self.calls


# Each model with the part that its error names.
REFUSED: dict[type[Linear], str] = {
    **dict.fromkeys(
        (
            Counter,
            CounterInTraining,
            CounterInEvaluation,
            Alternating,
            AlternatingEvaluation,
            LastEvaluation,
            TrainedFlag,
            MovingAverage,
            FirstBatch,
            FirstTrainingBatch,
            EvaluatedFlag,
            FirstWeights,
            Recurrent,
            CacheOfInputs,
            Cache,
            TorchGenerator,
            NumpyGenerator,
            PythonGenerator,
            RareDraw,
            UnseededFactory,
            Reseeding,
            Time,
            GlobalCounter,
            ClassCounter,
        ),
        "model",
    ),
    **dict.fromkeys(
        (
            BufferInPlace,
            BufferReplaced,
            BufferInEvaluation,
            BufferData,
            BufferDataReplaced,
            BufferDataInEvaluation,
        ),
        "one",
    ),
    FrozenData: "frozen",
    SpectralNorm: "inner.parametrizations.weight.0._u",
    MaxNorm: "embedding.weight",
    TiedAnew: "other",
    **dict.fromkeys(
        (
            Clamp,
            ClampInEvaluation,
            LateClamp,
            DataClamp,
            LateDataClamp,
            DataCopyInTraining,
            DataInEvaluation,
            DataAssigned,
            Loaded,
            FromVector,
            Replaced,
            ChangedInBackward,
        ),
        "w",
    ),
}
EQUAL: tuple[type[Linear], ...] = (
    NumpyNoise,
    TorchNoise,
    MonteCarloDropout,
    FunctionalDropout,
    DropoutLayer,
    SkippedLayer,
    RandomFactory,
    HarmlessCounter,
    LazyConstant,
    InputInPlace,
    WeightNorm,
    PrunedLayer,
    BatchStatistics,
    MergedInEvaluation,
    ResetByMode,
)
