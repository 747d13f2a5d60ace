"""Measure small models: executors and other simulators, growth with the cohort, and a stacked sweep.

    python benchmarks/small_models.py [PART ...] [--against fedjax,pfl] [--repeats 3] [--write DOCUMENT]

Parts: bench, cohort, size, sweep, start; default: all, in about eight minutes. Use an otherwise idle machine.
With `--write`, the tables replace the text between the markers of the document.

bench   rounds per second of small_lr and small_mlp on each executor, and the ratios to other simulators
cohort  duration of a round against the number of clients, with 10 steps of 10 examples each
size    processor time of a round against the operations of a step, for the limit of `executor = auto`
sweep   duration of a sweep with 25 trials, compared with one run of the same length: the commands, and the
        training alone
start   duration of a run of two rounds, without and with compiled code in the cache
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from speed.__main__ import measure
from speed.engine_rounds import EngineRounds
from speed.measure_task import SpeedOptions
from speed.origin import MarkedBlock, describe_origin, measurement_origin
from speed.peers import parse_peers
from speed.result_table import executor_rows, markdown_table
from speed.workload import build_workload

COHORTS = (10, 30, 100, 300, 1000)
HIDDEN = (32, 256, 1024, 4096)  # units of the perceptron
EXECUTORS = ("compiled", "vectorised")
MEASURED_SECONDS = 2.0  # per point of the cohort axis and repeat
ROUNDS = 200
GRID = "client_lr=-2.5:-0.5:0.5, server_lr=-1:1:0.5"  # 25 points
# The workload small_mlp as a run: 10 clients with 10 steps of 10 examples.
RUN = ("--algorithm", "fedavg", "--set", "client.steps=10")

log = partial(print, file=sys.stderr, flush=True)


def measure_bench(against: str, repeats: int) -> list[str]:
    result = measure(
        ["small_lr", "small_mlp"], SpeedOptions(parse_peers(against), repeats, seconds=120.0), log
    )
    lines = markdown_table(*executor_rows(result))
    for task, numbers in result["tasks"].items():
        executors = numbers["executors"]
        ratio = executors["serial"]["seconds"] / numbers["seconds"]
        lines += ["", f"{task}: `{numbers['executor']}` is {ratio:.1f} times as fast as `serial`."]
        lines += [f"{task}: {name} is absent: {reason}." for name, reason in numbers["absent"].items()]
    return lines


def measure_cohort(repeats: int) -> list[str]:
    rows = []
    for executor in EXECUTORS:
        for clients in COHORTS:
            seconds = _round_seconds(executor, clients, repeats)
            log(f"  {executor}, {clients} clients: {1000 * seconds:.2f} ms per round")
            per_client = f"{1e6 * seconds / clients:.1f} µs"
            rows.append([executor, f"{clients:,}", f"{1000 * seconds:.2f} ms", per_client])
    return markdown_table(("executor", "clients per round", "round", "per client"), rows)


def measure_size(repeats: int) -> list[str]:
    executors = ("serial", *EXECUTORS)
    rows = []
    for hidden in HIDDEN:
        times = [
            _round_seconds(name, 10, repeats, {"model.hidden": hidden}, time.thread_time)
            for name in executors
        ]
        # A step has three times the operations of its forward pass: two for each weight and example.
        operations = 3 * 10 * 2 * (60 + 10) * hidden
        log(f"  {hidden} units: {', '.join(f'{1000 * seconds:.1f} ms' for seconds in times)}")
        rows.append([f"{operations / 1e6:.1f} M", *(f"{1000 * seconds:.1f} ms" for seconds in times)])
    return markdown_table(("operations of a step", *executors), rows)


def _round_seconds(
    executor: str,
    clients: int,
    repeats: int,
    settings: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median time of a round of small_mlp with other settings."""
    with tempfile.TemporaryDirectory() as scratch:
        workload = build_workload("small_mlp", Path(scratch), clients, None, settings or {})
        engine = EngineRounds(workload, 1, executor, record_times=False)
        try:
            engine.run_round()
            times: list[float] = []
            end = time.monotonic() + MEASURED_SECONDS
            while len(times) < 2 or (len(times) < 100 * repeats and time.monotonic() < end):
                start = clock()
                engine.run_round()
                times.append(clock() - start)
        finally:
            engine.close()
    return median(times)


def run_fedopt(*words: str, environment: dict[str, str] | None = None) -> float:
    """Run a command in a new process and return its duration."""
    start = time.monotonic()
    command = [sys.executable, "-m", "fedopt", *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **(environment or {})})
    return time.monotonic() - start


def measure_sweep(repeats: int) -> list[str]:
    rows = []
    for executor in EXECUTORS:
        options = ("synthetic_mlp", *RUN, "--rounds", str(ROUNDS), "--executor", executor)
        measured: list[tuple[float, ...]] = []
        for repeat in range(repeats + 1):
            with tempfile.TemporaryDirectory() as scratch:
                run = run_fedopt("run", *options, "--out", f"{scratch}/run")
                sweep = run_fedopt("sweep", *options, "--grid", GRID, "--out", f"{scratch}/sweep")
                times = run, sweep, *(training_seconds(Path(scratch, name)) for name in ("run", "sweep"))
            log(f"  {executor}: {', '.join(f'{seconds:.2f} s' for seconds in times)}")
            if repeat:  # the first commands compile
                measured.append(times)
        run, sweep, run_training, sweep_training = (median(column) for column in zip(*measured, strict=True))
        rows.append(
            [
                executor,
                *(f"{run:.2f} s", f"{sweep:.2f} s", f"{sweep / run:.2f}"),
                *(f"{run_training:.2f} s", f"{sweep_training:.2f} s", f"{sweep_training / run_training:.2f}"),
            ]
        )
    header = (
        "executor",
        "one run",
        "25 trials",
        "ratio",
        "one run, training",
        "25 trials, training",
        "ratio",
    )
    return markdown_table(header, rows)


def training_seconds(out: Path) -> float:
    """Return the longest duration that a run directory below `out` records, without start and report."""
    return max(float(json.loads(file.read_bytes())["seconds"]) for file in out.rglob("run.json"))


def measure_start(repeats: int) -> list[str]:
    rows = []
    options = ("synthetic_mlp", *RUN, "--rounds", "2", "--executor")
    for executor in ("serial", *EXECUTORS):
        with tempfile.TemporaryDirectory() as scratch:
            cache = {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache"}
            times = [
                run_fedopt("run", *options, executor, "--out", f"{scratch}/{number}", environment=cache)
                for number in range(3)
            ]
        log(f"  {executor}: {', '.join(f'{seconds:.1f} s' for seconds in times)}")
        rows.append([executor, f"{times[0]:.1f} s", f"{min(times[1:]):.1f} s"])
    return markdown_table(("executor", "first start", "second start"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to measure; default: all")
    parser.add_argument("--against", default="fedjax,pfl", help="other simulators of `bench`")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write the tables there")
    options = parser.parse_args()
    parts: dict[str, Callable[[int], list[str]]] = {
        "bench": partial(measure_bench, options.against),
        "cohort": measure_cohort,
        "size": measure_size,
        "sweep": measure_sweep,
        "start": measure_start,
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown part {min(unknown)!r}; allowed: {', '.join(parts)}")
    block = MarkedBlock(options.write, "small models") if options.write else None
    lines = [f"{describe_origin(measurement_origin())}; medians of {options.repeats} repeats."]
    for name in options.parts or parts:
        log(name)
        lines += ["", f"**{name.capitalize()}**", "", *parts[name](options.repeats)]
    print("\n".join(lines))
    if block:
        block.write(lines)


if __name__ == "__main__":
    main()
