"""One task, measured: our rounds, the machine's products and the peers' rounds in turn, again and again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch

from fedopt.algorithms.base import Vector
from fedopt.bench import memory
from fedopt.bench.gemm import Products
from fedopt.bench.ours import Ours, Timed
from fedopt.bench.peers import Absent, Peer, find
from fedopt.bench.products import products
from fedopt.bench.work import Work, make_work
from fedopt.engine import allocation
from fedopt.engine.worker import single_thread
from fedopt.models.flat import Flat

Say = Callable[[str], None]
_Measured = TypeVar("_Measured")
_TURN = 1.0  # seconds
_LOSS_EXAMPLES = 200
# By how much a peer's loss after the first round may differ from ours: dropout draws other masks, and
# FedJAX fills up the last batch. Where there is neither, the distance in the JSON is that of rounding.
_OF_DESCENT, _OF_LOSS = 0.25, 0.005


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    peers: Sequence[str]
    directory: Path | None  # benchmarks/peers
    repeats: int
    workers: int
    clients: int | None
    steps: int | None
    seconds: float  # after which no further repeat begins


@dataclass
class _Taken:
    """Measurements of one task, in the order in which they were made."""

    ours: list[Timed] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)


def measure(task: str, asked: Asked, say: Say) -> dict[str, Any]:
    """The numbers of one task as they stand in the JSON."""
    allocation.give_back()  # what tasks before needed is none of this one's memory
    with TemporaryDirectory(prefix="fedopt-bench-") as directory, ExitStack() as open_sides:
        work = make_work(task, Path(directory), asked.clients, asked.steps)
        say(_describe(work))
        ours = Ours(work, asked.workers)
        open_sides.callback(ours.close)
        gemm = Products(products(task, work.problem.local.batch_size), asked.workers)
        open_sides.callback(gemm.close)
        peers, absent = _start_peers(work, ours, asked, open_sides, say)
        taken = _repeat(ours, gemm, peers, absent, asked, say)
        return _numbers(work, ours, peers, absent, taken)


def _describe(work: Work) -> str:
    cut = f" ({work.cut})" if work.cut else ""
    return (
        f"{work.task}: {len(work.examples)} clients with {_span(work.examples)} examples and "
        f"{_span(work.steps)} steps of batch size {work.problem.local.batch_size}{cut}"
    )


def _span(counts: Sequence[int]) -> str:
    return f"{sum(counts):,} ({min(counts):,} to {max(counts):,} each)"


def _start_peers(
    work: Work, ours: Ours, asked: Asked, open_sides: ExitStack, say: Say
) -> tuple[dict[str, tuple[Peer, dict[str, Any]]], dict[str, str]]:
    """Those that are there and do the same work, with how near they are; the others with the reason."""
    peers: dict[str, tuple[Peer, dict[str, Any]]] = {}
    absent: dict[str, str] = {}
    for name in asked.peers:
        try:
            side = find(name, asked.directory)
            say(f"  {name}: starting")
            peer = Peer(side, work.directory, asked.workers)
            open_sides.callback(peer.close)
            peers[name] = peer, compare_first_round(work, ours.first_x, work.directory / f"{name}_x.npy")
        except Absent as reason:
            absent[name] = str(reason)
            say(f"  {name}: absent: {reason}")
    return peers, absent


def compare_first_round(work: Work, ours: Vector, file: Path) -> dict[str, Any]:
    """How the model after a peer's first round compares with ours; Absent if it did other work."""
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise Absent(f"it left no model after its first round ({error})") from None
    if found.shape != tuple(work.x.shape) or found.dtype != np.float32:
        raise Absent(f"its model has {found.size:,} parameters ({found.dtype}) and ours {len(work.x):,}")
    theirs = torch.from_numpy(found)
    before, after, other = (_loss(work, x) for x in (work.x, ours, theirs))
    moved = float((ours - work.x).norm())
    if not abs(other - after) <= _OF_DESCENT * abs(before - after) + _OF_LOSS * after:
        raise Absent(
            f"its first round takes the loss from {before:.4g} to {other:.4g} and ours to {after:.4g}: not "
            "the same work"
        )
    return {"loss": other, "our_loss": after, "distance": float((theirs - ours).norm()) / max(moved, 1e-30)}


def _loss(work: Work, x: Vector) -> float:
    """Mean loss of a model on the first examples of the cohort, without dropout."""
    problem = work.problem
    flat = Flat(problem.model())
    flat.module.eval()
    split = problem.federation().train
    losses: list[torch.Tensor] = []
    with single_thread(), torch.no_grad():
        flat.bind(x.clone())
        for client in range(len(split.ids)):
            arrays = split.client(client)
            rows = slice(0, max(1, _LOSS_EXAMPLES // len(split.ids)))
            inputs, targets = problem.prepare(tuple(torch.tensor(a[rows]) for a in arrays), None)
            losses.append(problem.loss(flat.module(inputs), targets).reshape(-1))
    return float(torch.cat(losses).mean())


def _repeat(
    ours: Ours,
    gemm: Products,
    peers: dict[str, tuple[Peer, dict[str, Any]]],
    absent: dict[str, str],
    asked: Asked,
    say: Say,
) -> _Taken:
    """All sides in turn, so that what else the machine does falls on all of them."""
    taken = _Taken(peers={name: [] for name in peers})
    began = time.monotonic()
    for repeat in range(asked.repeats):
        if repeat and time.monotonic() - began > asked.seconds:
            say(f"  stopped after {repeat} of {asked.repeats} repeats: {asked.seconds:.0f} s are over")
            break
        taken.ours.append(_turn(ours.round, lambda timed: timed.seconds))
        taken.step_seconds.append(gemm.step_seconds())
        line = [f"ours {taken.ours[-1].seconds:.3f} s"]
        for name in list(peers):
            try:
                taken.peers[name].append(_turn(peers[name][0].round, float))
                line.append(f"{name} {taken.peers[name][-1]:.3f} s")
            except Absent as reason:
                absent[name] = str(reason)
                line.append(f"{name} absent: {reason}")
                del peers[name], taken.peers[name]
        say(f"  round {repeat + 1} of {asked.repeats}: {', '.join(line)}")
    return taken


def _turn(round: Callable[[], _Measured], seconds: Callable[[_Measured], float]) -> _Measured:
    """Rounds for a second, one at least, and of these the median: the first finds the caches of others."""
    rounds = [round()]
    while sum(map(seconds, rounds)) < _TURN:
        rounds.append(round())
    return sorted(rounds, key=seconds)[len(rounds) // 2]


def _numbers(
    work: Work,
    ours: Ours,
    peers: dict[str, tuple[Peer, dict[str, Any]]],
    absent: dict[str, str],
    taken: _Taken,
) -> dict[str, Any]:
    seconds = [timed.seconds for timed in taken.ours]
    median = statistics.median(seconds)
    steps = sum(work.steps)
    # The time that the products alone take, on all workers at once; a short batch counts by its examples.
    alone = [step * work.epoch_batches / ours.workers for step in taken.step_seconds]
    shares = [a / b for a, b in zip(alone, seconds, strict=True)]
    outside, waiting = _own_cost(taken.ours, ours.workers)
    ratios = {name: _ratios(taken.peers[name], seconds) for name in peers}
    return {
        "rounds_per_s": 1 / median,
        "steps_per_s": steps / median,
        "seconds": median,
        "seconds_range": [min(seconds), max(seconds)],
        "repeats": len(seconds),
        "clients": len(work.examples),
        "paper_clients": work.paper_clients,
        "cut": work.cut,
        "batch_size": work.problem.local.batch_size,
        "examples": sum(work.examples),
        "examples_per_client": list(work.examples),
        "steps": steps,
        "steps_per_client": list(work.steps),
        "parameters": len(work.x),
        "multiply_adds": work.multiply_adds,
        "gemm_share": statistics.median(shares),
        "gemm_share_range": [min(shares), max(shares)],
        "gemm_seconds": statistics.median(alone),
        "gemm_gflops": 2e-9 * work.multiply_adds / statistics.median(alone),
        "engine_share": outside,
        "engine_share_beside": taken.ours[-1].spent.of,
        "waiting_share": waiting,
        "peak_memory_mb": ours.megabytes,
        "peak_memory_kind": memory.KIND,
        "ratio": {name: statistics.median(values) for name, values in ratios.items()},
        "ratio_range": {name: [min(values), max(values)] for name, values in ratios.items()},
        "peers": {
            name: {
                "rounds_per_s": 1 / statistics.median(taken.peers[name]),
                "seconds": statistics.median(taken.peers[name]),
                "seconds_range": [min(taken.peers[name]), max(taken.peers[name])],
                "peak_memory_mb": peer.megabytes,
                "versions": peer.ready.get("versions"),
                "settings": peer.ready.get("settings"),
                "first_round": compared,
            }
            for name, (peer, compared) in peers.items()
        },
        "absent": absent,
    }


def _ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """How many of our rounds fit into one of theirs, each beside the round of ours before it."""
    return [a / b for a, b in zip(theirs, ours, strict=True)]


def _own_cost(rounds: Sequence[Timed], workers: int) -> tuple[float | None, float]:
    """The share of the workers' time that is no forward or backward pass, and what of it no client had."""
    waiting = statistics.median(1 - r.spent.clients / (r.seconds * workers) for r in rounds)
    computing = [r.spent.computing / (r.seconds * workers) for r in rounds if r.spent.computing is not None]
    return (1 - statistics.median(computing) if computing else None), waiting
