"""A module's trainable parameters as one flat vector.

The server works on one vector, and the tensors of the module are views of it. A broadcast is therefore one
copy, the server needs no loop over layers, and a checkpoint has one array for each symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import ne

import torch
from torch import Tensor, nn

from fedopt.errors import ModelError, unknown
from fedopt.models.capabilities import SelfUpdating, has_gradient_hooks
from fedopt.models.fixed_state import FixedState, changed_tensor, fixed_tensors
from fedopt.models.norm_statistics import NormStatistics, tracking_norms
from fedopt.models.sparse_rows import SparseRows

BUFFER_POLICIES = ("refuse", "freeze", "average", "local")
_ALIGNMENT = 64  # bytes: matrix products may depend on the alignment of their inputs


class Flat:
    """Binds a module to flat vectors.

    Frozen parameters (requires_grad=False) are not part of the vector. A parameter that is used in several
    places is in the vector once. Running statistics of batch normalisation change in training:
    `buffers="refuse"` raises an error, and `buffers="freeze"` trains these layers with their present
    statistics. With "average" and "local" they are a second vector, `statistics`.
    """

    def __init__(self, module: nn.Module, buffers: str = "refuse") -> None:
        self.module = module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.shapes = [p.shape for p in self.parameters]
        self.sizes = [p.numel() for p in self.parameters]
        self.d = sum(self.sizes)
        norms = _check_buffers(module, buffers)
        self._frozen_norms = norms if buffers == "freeze" else []
        self.statistics = NormStatistics(module) if buffers in ("average", "local") else None
        self._check_parameters()
        self._parts = [p.data for p in self.parameters]  # the memory of each parameter
        self._tensors = self._named_tensors()
        trained = set() if self.statistics is None else self.statistics.names
        self._fixed = {name: t for name, t in fixed_tensors(module).items() if name not in trained}
        self._fixed_versions = self._read_fixed_versions()

    def _check_parameters(self) -> None:
        if self.d == 0:
            raise ModelError(
                "the model has no trainable parameters; set requires_grad=True on some", what="model"
            )
        named = list(zip(self.names, self.parameters, strict=True))
        for name, p in named:
            if p.dtype != torch.float32:
                raise ModelError(f"parameter {name!r} is {p.dtype}; call model.float()", what=name)
            if p._post_accumulate_grad_hooks:
                raise ModelError(
                    f"parameter {name!r} has a post-accumulate-grad hook, which training would never call; "
                    "use register_hook",
                    what=name,
                )
        starts = sorted((p.data_ptr(), p.numel() * 4, name) for name, p in named)
        for (a, length, one), (b, _, other) in zip(starts, starts[1:], strict=False):
            if a + length > b:
                raise ModelError(
                    f"parameters {one!r} and {other!r} share memory; tie them through one Parameter object",
                    what=other,
                )

    def read(self) -> Tensor:
        """Return a copy of the parameters as one vector, (d,)."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def split(self, x: Tensor, rows: SparseRows | None = None) -> list[Tensor]:
        """Return views of `x`, one for each parameter.

        `x` is a full vector, or a short one with these `rows` of the first parameter.
        """
        sizes, shapes = self.sizes, self.shapes
        if rows is not None:
            shapes = [torch.Size(rows.shape), *shapes[1:]]
            sizes = [shapes[0].numel(), *sizes[1:]]
        return [part.view(shape) for part, shape in zip(torch.split(x, sizes), shapes, strict=True)]

    def bind(self, x: Tensor, rows: SparseRows | None = None) -> None:
        """Make the parameters views of `x`; see `split`."""
        self._parts = self.split(x, rows)
        for p, part in zip(self.parameters, self._parts, strict=True):
            p.data = part

    def train(self) -> None:
        """Set training mode. Frozen normalisation layers stay in evaluation mode."""
        self.module.train()
        for layer in self._frozen_norms:
            layer.eval()

    def evaluate(self, statistics: Tensor | None = None) -> None:
        """Set evaluation mode with these running statistics, by default those of the initial model."""
        if self.statistics is not None:
            self.statistics.write(self.statistics.initial if statistics is None else statistics)
        self.module.eval()

    def fixed(self) -> FixedState:
        """Return a copy of the frozen parameters and buffers."""
        return FixedState(fixed_tensors(self.module))

    def versions(self) -> list[int]:
        """Return a number for each parameter that counts its changes in place."""
        return [p._version for p in self.parameters]

    def check_parameters(self, versions: list[int], x: Tensor | None = None) -> None:
        """Refuse a model that has changed a parameter since `versions` were read.

        With a copy `x` of the bound vector, values are compared too: `.data` changes them without a trace.
        """
        changed = list(map(ne, versions, self.versions()))
        if x is not None and not any(changed):
            before = torch.split(x, [part.numel() for part in self._parts])
            changed = [not _same_bits(a, b) for a, b in zip(before, self._parts, strict=True)]
        if any(changed):
            raise _changed_parameter(self.names[changed.index(True)])

    def check_tensors(self) -> None:
        """Refuse a model that has replaced a parameter, or changed a frozen parameter or a buffer."""
        before, now = self._tensors, self._named_tensors()
        for name, p, part in zip(self.names, self.parameters, self._parts, strict=True):
            if now.get(name) is not p or p.data_ptr() != part.data_ptr():
                raise _changed_parameter(name)
        changed = [name for name in {**before, **now} if before.get(name) is not now.get(name)]
        versions = zip(self._fixed, self._fixed_versions, self._read_fixed_versions(), strict=True)
        changed += [name for name, old, new in versions if old != new]
        if changed:
            raise changed_tensor(changed[0])

    def _named_tensors(self) -> dict[str, Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def _read_fixed_versions(self) -> list[tuple[int, int]]:
        """Return version and memory of all tensors that training must not change."""
        return [(t._version, t.untyped_storage()._cdata) for t in self._fixed.values()]


@contextmanager
def updating_in_backward(layers: Sequence[SelfUpdating], rate: float) -> Iterator[None]:
    """Let these layers take their steps of SGD in the backward pass."""
    for layer in layers:
        layer.rate = rate
    try:
        yield
    finally:
        for layer in layers:
            layer.rate = None


def check_copyable(module: nn.Module) -> None:
    """Reject a module that a copy would change: `copy.deepcopy` and pickling drop hooks on parameters."""
    if has_gradient_hooks(module) or any(p._post_accumulate_grad_hooks for p in module.parameters()):
        raise ModelError(
            "the model has hooks on parameters, which a copy of it would lose; pass a function that builds "
            "the model with its hooks",
            what="model",
        )


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(-1).view(torch.int32))  # NaN equals itself


def _changed_parameter(name: str) -> ModelError:
    return ModelError(
        f"the model's forward pass changed or replaced its parameter {name!r}, for example by max_norm or "
        "clamp_; only training may do that, so compute with a changed copy",
        what=name,
    )


def _check_buffers(module: nn.Module, policy: str) -> list[nn.Module]:
    if policy not in BUFFER_POLICIES:
        raise unknown("policy for buffers", policy, BUFFER_POLICIES)
    norms = tracking_norms(module)
    if norms and policy == "refuse":
        name = next(iter(norms))
        raise ModelError(
            f"layer {name!r} keeps running statistics, whose treatment is not defined; use GroupNorm, or set "
            "buffers='freeze' (present statistics), 'average' (mean over clients) or 'local' (per client)",
            what=name,
        )
    return list(norms.values())


def aligned(x: Tensor) -> Tensor:
    """Return `x` if its memory is aligned for matrix products, otherwise an aligned copy."""
    return x if x.data_ptr() % _ALIGNMENT == 0 else x.clone()
