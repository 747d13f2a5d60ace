"""A module's trainable parameters as one flat vector.

The server sees one vector; the module's tensors are views of it. So broadcast is one copy, server
mathematics has no loop over layers, and a checkpoint is one array per symbol.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedopt.errors import UserError, unknown
from fedopt.models.dense import movable
from fedopt.models.sparse_rows import Part

BUFFER_POLICIES = ("refuse", "freeze")
_ALIGNMENT = 64  # bytes: matrix products may depend on the alignment of their inputs


class Flat:
    """Binds a module to flat vectors.

    Frozen parameters (requires_grad=False) stay as they are and are not part of the vector; a parameter
    used in several places is in it once. Buffers that training changes, such as batch norm's running
    statistics, have no federated mean that would be right: `buffers="refuse"` says so, and
    `buffers="freeze"` runs those layers with the statistics they came with.
    """

    def __init__(self, module: nn.Module, buffers: str = "refuse") -> None:
        self.module = module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.shapes = [p.shape for p in self.parameters]
        self.sizes = [p.numel() for p in self.parameters]
        self.d = sum(self.sizes)
        self._frozen_norms = _check_buffers(module, buffers)
        self._check_parameters()

    def _check_parameters(self) -> None:
        if self.d == 0:
            raise UserError("the model has no trainable parameters; set requires_grad=True on some")
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.dtype != torch.float32:
                raise UserError(f"parameter {name!r} is {p.dtype}; call model.float(), fedopt trains float32")
        starts = sorted((p.data_ptr(), p.numel() * 4, name) for name, p in self._named())
        for (a, length, one), (b, _, other) in zip(starts, starts[1:], strict=False):
            if a + length > b:
                raise UserError(
                    f"parameters {one!r} and {other!r} share memory; tie them through one Parameter object"
                )

    def _named(self) -> list[tuple[str, Tensor]]:
        return list(zip(self.names, self.parameters, strict=True))

    def read(self) -> Tensor:
        """A copy of the parameters as one vector, (d,)."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def bind(self, x: Tensor, part: Part | None = None) -> None:
        """Make the module's parameters views of `x`, which is a whole vector or the `part` of one."""
        sizes, shapes = self.sizes, self.shapes
        if part is not None:
            shapes = [torch.Size(part.shape), *shapes[1:]]
            sizes = [shapes[0].numel(), *sizes[1:]]
        for p, values, shape in zip(self.parameters, torch.split(x, sizes), shapes, strict=True):
            p.data = values.view(shape)

    @contextmanager
    def descending(self, rate: float | None) -> Iterator[None]:
        """Let those layers that can take their steps of SGD in the backward pass do so; None: none does."""
        layers = movable(self.module)
        for layer in layers:
            layer.rate = rate
        try:
            yield
        finally:
            for layer in layers:
                layer.rate = None

    def train(self) -> None:
        """Training mode, with the frozen normalisation layers left in evaluation mode."""
        self.module.train()
        for layer in self._frozen_norms:
            layer.eval()

    def buffer_marks(self) -> dict[str, tuple[int, int]]:
        """Identity and version of every buffer: two equal marks mean that nothing wrote to them."""
        return {name: (id(b), b._version) for name, b in self.module.named_buffers()}


def _check_buffers(module: nn.Module, policy: str) -> list[nn.Module]:
    if policy not in BUFFER_POLICIES:
        raise unknown("policy for buffers", policy, BUFFER_POLICIES)
    norms = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.track_running_stats
    }
    if norms and policy == "refuse":
        raise UserError(
            f"layer {next(iter(norms))!r} keeps running statistics, which have no federated mean; "
            "use GroupNorm, or buffers='freeze' to train with the statistics it has"
        )
    return list(norms.values())


def aligned(x: Tensor) -> Tensor:
    """`x` itself if its memory is aligned for matrix products, else a copy that is."""
    return x if x.data_ptr() % _ALIGNMENT == 0 else x.clone()
