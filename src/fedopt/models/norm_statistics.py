"""The running statistics of normalisation layers as one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase


def tracking_norms(module: nn.Module) -> dict[str, nn.Module]:
    """Return the normalisation layers that keep running statistics, by name."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, _NormBase) and layer.track_running_stats
    }


class NormStatistics:
    """Running means, variances and batch counters of all normalisation layers of a module.

    The buffers get memory of their own, because training changes them in place.
    """

    def __init__(self, module: nn.Module) -> None:
        self._buffers = {
            f"{name}.{key}" if name else key: buffer
            for name, layer in tracking_norms(module).items()
            for key, buffer in layer.named_buffers(recurse=False)
        }
        for buffer in self._buffers.values():
            buffer.data = buffer.data.clone()
        self.initial = self.read()

    @property
    def names(self) -> set[str]:
        return set(self._buffers)

    def read(self) -> Tensor:
        """Return the statistics as one float32 vector."""
        parts = [buffer.detach().reshape(-1).float() for buffer in self._buffers.values()]
        return torch.cat(parts) if parts else torch.zeros(0)

    def write(self, values: Tensor) -> None:
        """Set the statistics. Batch counters are rounded: a mean over clients need not be an integer."""
        parts = torch.split(values, [buffer.numel() for buffer in self._buffers.values()])
        with torch.no_grad():
            for buffer, part in zip(self._buffers.values(), parts, strict=True):
                part = part if buffer.is_floating_point() else part.round()
                buffer.copy_(part.view(buffer.shape))
