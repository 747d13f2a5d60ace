"""Measure one workload: our rounds, the matrix products and the peers' rounds in alternation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from fedopt.engine import allocation
from fedopt.engine.executors import available_cores
from fedopt.files import Log

from . import memory
from .engine_rounds import EngineRounds, TimedRound, WorkerTimes
from .matrix_products import GemmProcesses, list_products
from .peers import PeerProcess, PeerUnavailable, compare_first_round, find_peer
from .workload import WORKLOADS, BenchmarkWorkload, build_workload

_Round = TypeVar("_Round")
_MEASURED_SECONDS = 1.0  # minimum length of the measurement of one simulator in one repeat


@dataclass(frozen=True)
class SpeedOptions:
    """Options of the command line."""

    peers: Sequence[str] = ()
    repeats: int = 5
    workers: int = available_cores()
    clients: int | None = None
    steps: int | None = None
    seconds: float = 300.0  # no further repeat starts after this time


@dataclass
class _Measurements:
    """Measurements of one workload, one entry per repeat."""

    ours: list[TimedRound] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)  # by executor
    gemm_step_seconds: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class _Peers:
    """Running peers with the comparison of their first round, and the reasons why others are absent."""

    running: dict[str, tuple[PeerProcess, dict[str, Any]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


_Engines = Mapping[str, EngineRounds]  # by executor; the first gives the main numbers


def measure_task(name: str, options: SpeedOptions, log: Log) -> dict[str, Any]:
    """Return the numbers of one workload as they appear in the JSON output."""
    allocation.release_unused_memory()  # memory of earlier workloads must not count
    with TemporaryDirectory(prefix="fedopt-bench-") as directory, ExitStack() as stack:
        workload = build_workload(name, Path(directory), options.clients, options.steps)
        log(_describe(workload))
        engines = _start_engines(workload, options.workers, stack)
        products = list_products(workload.task, workload.problem.local.batch_size)
        main = next(iter(engines.values()))
        gemm = GemmProcesses(products, main.workers)
        stack.callback(gemm.close)
        peers = _start_peers(workload, main, options, stack, log)
        measurements = _measure_repeats(engines, gemm, peers, options, log)
        return _summarize(workload, engines, peers, measurements)


def _start_engines(workload: BenchmarkWorkload, workers: int, stack: ExitStack) -> _Engines:
    executors, engines = WORKLOADS[workload.name].executors, {}
    for name in executors:
        is_pool = name == "processes"
        # Recording takes longer than the round of a small model, so it is only done for the paper's tasks.
        record_times = is_pool and len(executors) == 1
        engines[name] = EngineRounds(workload, workers if is_pool else 1, name, record_times)
        stack.callback(engines[name].close)
    return engines


def _describe(workload: BenchmarkWorkload) -> str:
    cut = f" ({workload.cut})" if workload.cut else ""
    return (
        f"{workload.name}: {len(workload.examples)} clients with {_total_and_range(workload.examples)} "
        f"examples and {_total_and_range(workload.steps)} steps of batch size "
        f"{workload.problem.local.batch_size}{cut}"
    )


def _total_and_range(counts: Sequence[int]) -> str:
    return f"{sum(counts):,} ({min(counts):,} to {max(counts):,} each)"


def _start_peers(
    workload: BenchmarkWorkload, engine: EngineRounds, options: SpeedOptions, stack: ExitStack, log: Log
) -> _Peers:
    """Start the peers and keep those whose first round did the same work as ours."""
    peers = _Peers()
    for name in options.peers:
        try:
            installation = find_peer(name)
            log(f"  {name}: starting")
            peer = PeerProcess(installation, workload.directory, options.workers)
            stack.callback(peer.close)
            model_file = workload.directory / f"{name}_x.npy"
            comparison = compare_first_round(workload, engine.x_after_first_round, model_file)
            peers.running[name] = peer, comparison
        except PeerUnavailable as reason:
            peers.absent[name] = str(reason)
            log(f"  {name}: absent: {reason}")
    return peers


def _measure_repeats(
    engines: _Engines, gemm: GemmProcesses, peers: _Peers, options: SpeedOptions, log: Log
) -> _Measurements:
    """Alternate between the simulators, so that other load on the machine affects all of them."""
    (_, main), *others = engines.items()
    measurements = _Measurements(
        others={name: [] for name, _ in others}, peers={name: [] for name in peers.running}
    )
    start = time.monotonic()
    for repeat in range(options.repeats):
        if repeat and time.monotonic() - start > options.seconds:
            log(f"  stopped after {repeat} of {options.repeats} repeats: limit of {options.seconds:.0f} s")
            break
        measurements.ours.append(_median_round(main.run_round, lambda timed: timed.seconds))
        measurements.gemm_step_seconds.append(gemm.step_seconds())
        parts = [f"ours {measurements.ours[-1].seconds:.4g} s"]
        for name, (peer, _) in list(peers.running.items()):
            try:
                seconds = _median_round(peer.run_round, float)
                measurements.peers[name].append(seconds)
                parts.append(f"{name} {seconds:.4g} s")
            except PeerUnavailable as reason:
                peers.absent[name] = str(reason)
                parts.append(f"{name} absent: {reason}")
                del peers.running[name], measurements.peers[name]
        for name, engine in others:
            seconds = _median_round(engine.run_round, lambda timed: timed.seconds).seconds
            measurements.others[name].append(seconds)
            parts.append(f"{name} {seconds:.4g} s")
        log(f"  repeat {repeat + 1} of {options.repeats}: {', '.join(parts)}")
    return measurements


def _median_round(run_round: Callable[[], _Round], seconds: Callable[[_Round], float]) -> _Round:
    """Run rounds for at least one second and return the median, because the first one has cold caches."""
    rounds = [run_round()]
    while sum(map(seconds, rounds)) < _MEASURED_SECONDS:
        rounds.append(run_round())
    return sorted(rounds, key=seconds)[len(rounds) // 2]


def _summarize(
    workload: BenchmarkWorkload, engines: _Engines, peers: _Peers, measurements: _Measurements
) -> dict[str, Any]:
    executor, engine = next(iter(engines.items()))
    seconds = [timed.seconds for timed in measurements.ours]
    median = statistics.median(seconds)
    steps = sum(workload.steps)
    # Time of the products alone with all workers busy. A short batch counts by its number of examples.
    gemm_seconds = [step * workload.full_batches / engine.workers for step in measurements.gemm_step_seconds]
    gemm_shares = [a / b for a, b in zip(gemm_seconds, seconds, strict=True)]
    # Each round of a peer is compared with our round just before it.
    ratios = {
        name: [theirs / ours for theirs, ours in zip(measurements.peers[name], seconds, strict=True)]
        for name in peers.running
    }
    return {
        "executor": executor,
        "executors": {
            name: _describe_times(times) for name, times in {executor: seconds, **measurements.others}.items()
        },
        "rounds_per_s": 1 / median,
        "steps_per_s": steps / median,
        "seconds": median,
        "seconds_range": [min(seconds), max(seconds)],
        "repeats": len(seconds),
        "clients": len(workload.examples),
        "paper_clients": workload.full_clients,
        "cut": workload.cut,
        "batch_size": workload.problem.local.batch_size,
        "examples": sum(workload.examples),
        "examples_per_client": list(workload.examples),
        "steps": steps,
        "steps_per_client": list(workload.steps),
        "parameters": len(workload.x),
        "multiply_adds": workload.multiply_adds,
        "gemm_share": statistics.median(gemm_shares),
        "gemm_share_range": [min(gemm_shares), max(gemm_shares)],
        "gemm_seconds": statistics.median(gemm_seconds),
        "gemm_gflops": 2e-9 * workload.multiply_adds / statistics.median(gemm_seconds),
        "engine_share": _share_outside(measurements.ours, engine.workers, lambda times: times.passes),
        "engine_share_beside": "forward and backward passes",
        "waiting_share": _share_outside(measurements.ours, engine.workers, lambda times: times.clients),
        "peak_memory_mb": engine.peak_megabytes,
        "peak_memory_kind": memory.KIND,
        "ratio": {name: statistics.median(values) for name, values in ratios.items()},
        "ratio_range": {name: [min(values), max(values)] for name, values in ratios.items()},
        "peers": {
            name: {
                **_describe_times(measurements.peers[name]),
                "peak_memory_mb": peer.peak_megabytes,
                "versions": peer.ready.get("versions"),
                "settings": peer.ready.get("settings"),
                "first_round": comparison,
            }
            for name, (peer, comparison) in peers.running.items()
        },
        "absent": peers.absent,
    }


def _describe_times(seconds: Sequence[float]) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {"rounds_per_s": 1 / median, "seconds": median, "seconds_range": [min(seconds), max(seconds)]}


def _share_outside(
    rounds: Sequence[TimedRound], workers: int, inside: Callable[[WorkerTimes], float]
) -> float | None:
    """Return the share of the workers' time that is not `inside` seconds, as the median over the rounds.

    Return None if the times were not recorded.
    """
    shares = [
        inside(timed.workers) / (timed.seconds * workers) for timed in rounds if timed.workers is not None
    ]
    return 1 - statistics.median(shares) if shares else None
