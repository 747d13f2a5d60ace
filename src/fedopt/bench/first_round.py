"""Check that a peer's first round did the same work as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedopt.algorithms.base import Vector
from fedopt.bench.peers import PeerUnavailable
from fedopt.bench.workload import BenchmarkWorkload
from fedopt.engine.torch_state import single_thread
from fedopt.models.flat import Flat

_LOSS_EXAMPLES = 200
# Largest allowed difference between the losses after the first round, relative to our decrease and to our
# loss. Dropout masks differ, and FedJAX fills up the last batch. Otherwise only rounding errors remain.
_DECREASE_TOLERANCE, _LOSS_TOLERANCE = 0.25, 0.005


def compare_first_round(workload: BenchmarkWorkload, ours: Vector, file: Path) -> dict[str, Any]:
    """Compare the peer's model after one round with ours.

    Raise `PeerUnavailable` if the losses differ too much.
    """
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise PeerUnavailable(f"no model was written after the first round ({error})") from None
    if array.shape != tuple(workload.x.shape) or array.dtype != np.float32:
        raise PeerUnavailable(
            f"the peer's model has {array.size:,} parameters ({array.dtype}), ours has {len(workload.x):,}"
        )
    theirs = torch.from_numpy(array)
    initial_loss, our_loss, their_loss = (_mean_loss(workload, x) for x in (workload.x, ours, theirs))
    tolerance = _DECREASE_TOLERANCE * abs(initial_loss - our_loss) + _LOSS_TOLERANCE * our_loss
    if not abs(their_loss - our_loss) <= tolerance:
        raise PeerUnavailable(
            f"the first round is not equivalent: the loss goes from {initial_loss:.4g} to {their_loss:.4g}, "
            f"ours to {our_loss:.4g}"
        )
    moved = float((ours - workload.x).norm())
    distance = float((theirs - ours).norm()) / max(moved, 1e-30)
    return {"loss": their_loss, "our_loss": our_loss, "distance": distance}


def _mean_loss(workload: BenchmarkWorkload, x: Vector) -> float:
    """Return the mean loss on the first examples of each client, without dropout."""
    problem = workload.problem
    flat = Flat(problem.model())
    flat.module.eval()
    split = problem.federation().train
    rows = slice(0, max(1, _LOSS_EXAMPLES // len(split.ids)))
    losses: list[torch.Tensor] = []
    with single_thread(), torch.no_grad():
        flat.bind(x.clone())
        for client in range(len(split.ids)):
            arrays = tuple(torch.tensor(a[rows]) for a in split.client(client))
            inputs, targets = problem.prepare(arrays, None)
            losses.append(problem.loss(flat.module(inputs), targets).reshape(-1))
    return float(torch.cat(losses).mean())
