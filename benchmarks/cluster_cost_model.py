"""Predict the time of a round on a cluster from measurements on one machine.

    python benchmarks/cluster_cost_model.py [--repeats 3] [--network 10] [--out FILE] [--write DOCUMENT]
    python benchmarks/cluster_cost_model.py --measured FILE [--network 10] [--write DOCUMENT]

The model of a round has four terms:

    compute      seconds per step and per client of the busiest worker, which follow from the pieces
    reduction    seconds per byte x bytes of all answers: the driver reads and adds them one after the other
    broadcast    bytes of x / bandwidth x ceil(log2(nodes + 1)): nodes that have x pass it on
    transfer     bytes of all answers / bandwidth: all of them reach the driver through one network card

Rounds of two tasks with several cohorts and steps are timed on one and two workers of Ray. The time in which
the driver waits for workers gives the seconds per step and per client of each task. The rest gives seconds
per answered byte, seconds per byte of x and a constant. All are fitted by least squares. The terms are added;
where the driver works while workers train, the prediction is too long. Broadcast and transfer over a network
cannot be measured on one machine; `--network` sets the assumed Gbit/s. `--measured` reads the rounds from a
file that `--out` has written.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from speed.engine_rounds import EngineRounds
from speed.origin import MarkedBlock, describe_origin, measurement_origin
from speed.workload import build_workload

from fedopt.engine.executors.ray.connection import connected, import_ray
from fedopt.engine.executors.ray.pieces import split_cohort
from fedopt.files import write_atomically

TASKS = ("emnist_cr", "so_nwp")
COHORTS = (8, 24)
CLIENT_STEPS = (1, 4)
WORKERS = (1, 2)
WORKERS_PER_NODE = 16
PREDICTED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
CURVES = (("emnist_cr", 1_000), ("so_nwp", 1_000), ("so_nwp", 10_000))  # tasks and cohorts
STEPS = 20  # of a client in the prediction, about one epoch of the paper's tasks
TERMS = ("compute", "reduction", "broadcast", "transfer")


class Point(NamedTuple):
    """A measured round."""

    task: str
    workers: int
    steps: tuple[int, ...]  # of each client
    vector_bytes: int
    seconds: float
    driver_seconds: float  # in which the driver did not wait for workers


class Fit(NamedTuple):
    """The constants of the model, in seconds."""

    per_step: dict[str, float]
    per_client: dict[str, float]
    per_answered_byte: float
    per_broadcast_byte: float
    constant: float
    error: float  # largest relative error over the measured rounds


class Schedule(NamedTuple):
    """The pieces of a round on a number of workers."""

    steps: int  # of the busiest worker
    clients: int  # of the same worker
    answers: int


def schedule(steps: Sequence[int], workers: int) -> Schedule:
    """Give the pieces of a cohort to workers as these become free."""
    jobs: Any = list(range(len(steps)))
    pieces = [piece for block in split_cohort(jobs, steps, workers) for piece in block]
    loads = [(0, 0)] * workers
    for piece in pieces:
        busy, clients = loads[0]
        heapq.heapreplace(loads, (busy + piece.steps, clients + len(piece.jobs)))
    return Schedule(*max(loads), len(pieces))


class WaitingTime:
    """Seconds that the driver spends in `ray.wait`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        ray = import_ray()
        wait = ray.wait

        def counted(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return wait(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start

        ray.wait = counted
        try:
            yield
        finally:
            ray.wait = wait


def measure(repeats: int) -> list[Point]:
    """Time rounds of all tasks, cohorts, steps and numbers of workers."""
    points = []
    cases = [(task, clients, steps) for task in TASKS for clients in COHORTS for steps in CLIENT_STEPS]
    with tempfile.TemporaryDirectory() as scratch, connected(None, max(WORKERS)):
        for task, clients, steps in cases:
            workload = build_workload(task, Path(scratch, f"{task}-{clients}-{steps}"), clients, steps)
            for workers in WORKERS:
                rounds = EngineRounds(workload, workers, "ray", record_times=False)
                seconds, busy = zip(*(_time_round(rounds) for _ in range(repeats)), strict=True)
                rounds.close()
                ordered = tuple(sorted(workload.steps, reverse=True))
                point = Point(task, workers, ordered, workload.x.nbytes, median(seconds), median(busy))
                points.append(point)
                print(
                    f"  {task}, {clients} clients with {steps} steps, {workers} workers: "
                    f"{point.seconds:.3f} s, driver {point.driver_seconds:.3f} s",
                    file=sys.stderr,
                )
    return points


def _time_round(rounds: EngineRounds) -> tuple[float, float]:
    """Return the duration of a round and the part of it in which the driver does not wait."""
    waiting = WaitingTime()
    with waiting.counting():
        seconds = rounds.run_round().seconds
    return seconds, seconds - waiting.seconds


def fit(points: Sequence[Point]) -> Fit:
    """Fit the model by least squares with relative errors and constants of at least zero."""
    schedules = [schedule(point.steps, point.workers) for point in points]
    waiting_rows = [
        [value if point.task == task else 0 for value in (planned.steps, planned.clients) for task in TASKS]
        for point, planned in zip(points, schedules, strict=True)
    ]
    driver_rows = [
        [planned.answers * point.vector_bytes, point.vector_bytes, 1.0]
        for point, planned in zip(points, schedules, strict=True)
    ]
    seconds = np.array([point.seconds for point in points])
    driver = np.array([point.driver_seconds for point in points])
    waiting_constants = _least_squares(waiting_rows, seconds - driver)
    driver_constants = _least_squares(driver_rows, driver)
    predicted = np.array(waiting_rows) @ waiting_constants + np.array(driver_rows) @ driver_constants
    error = float(np.abs(predicted / seconds - 1).max())
    per_step, per_client = (
        dict(zip(TASKS, map(float, part), strict=True)) for part in np.split(waiting_constants, 2)
    )
    per_answered_byte, per_broadcast_byte, constant = map(float, driver_constants)
    return Fit(per_step, per_client, per_answered_byte, per_broadcast_byte, constant, error)


def _least_squares(rows: Sequence[Sequence[float]], seconds: np.ndarray) -> np.ndarray:
    """Return constants of at least zero with the smallest sum of squared relative errors."""
    matrix = np.array(rows) / seconds[:, None]
    scale = matrix.max(axis=0)
    solution, _ = nnls(matrix / scale, np.ones(len(seconds)))
    return np.asarray(solution / scale)


def predict(
    model: Fit, task: str, cohort: int, workers: int, vector_bytes: int, network: float
) -> dict[str, float]:
    """Return the seconds of each term of a round. `network` is the bandwidth in Gbit/s."""
    planned = schedule([STEPS] * cohort, workers)
    nodes = ceil(workers / WORKERS_PER_NODE)
    bytes_per_second = network * 1e9 / 8
    hops = ceil(log2(nodes + 1)) if nodes > 1 else 0
    answered = planned.answers * vector_bytes * (1 - 1 / nodes)  # the driver's own node needs no network
    return {
        "compute": model.per_step[task] * planned.steps + model.per_client[task] * planned.clients,
        "reduction": model.per_answered_byte * planned.answers * vector_bytes + model.constant,
        "broadcast": vector_bytes * (model.per_broadcast_byte + hops / bytes_per_second),
        "transfer": answered / bytes_per_second,
    }


def format_table(result: dict[str, Any]) -> list[str]:
    model = Fit(**result["fit"])
    headings = [f"`{curve['task']}`, {curve['cohort']:,} clients" for curve in result["curves"]]
    compute = "; ".join(
        f"`{task}`: {1e3 * model.per_step[task]:.1f} ms per step and {1e3 * model.per_client[task]:.1f} ms "
        "per client"
        for task in TASKS
    )
    lines = [
        "",
        f"{describe_origin(result)}. Fitted to {len(result['points'])} measured rounds; the largest relative "
        f"error is {100 * model.error:.0f} %. {compute}. The driver needs "
        f"{1e9 * model.per_answered_byte:.2f} ms per megabyte of answers. Assumed: "
        f"{result['network']:g} Gbit/s, {WORKERS_PER_NODE} workers per node, {STEPS} steps per client.",
        "",
        f"| workers | {' | '.join(headings)} |",
        "|---:|" + "---:|" * len(result["curves"]),
    ]
    for number, workers in enumerate(PREDICTED):
        cells = []
        for curve in result["curves"]:
            terms = {term: curve["terms"][term][number] for term in TERMS}
            limit = max(terms, key=lambda term: terms[term])
            total = sum(terms.values())
            cells.append(f"{total:,.0f} s ({limit})" if total >= 100 else f"{total:.3g} s ({limit})")
        lines.append(f"| {workers:,} | {' | '.join(cells)} |")
    return [*lines, ""]


def draw_figure(result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedopt"  # equal figures give equal files
    from matplotlib import pyplot

    colours = dict(zip(TERMS, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True))
    curves = result["curves"]
    figure, axes = pyplot.subplots(1, len(curves), figsize=(3.6 * len(curves), 3.4), squeeze=False)
    for plot, curve in zip(axes[0], curves, strict=True):
        total = np.sum([curve["terms"][term] for term in TERMS], axis=0)
        plot.plot(PREDICTED, total, color="black", linewidth=2, label="round")
        for term, colour in colours.items():
            values = [value if value > 0 else float("nan") for value in curve["terms"][term]]
            plot.plot(PREDICTED, values, color=colour, label=term)
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_ylim(bottom=max(total.min() / 1e3, 1e-4))
        plot.set_xlabel("workers")
        plot.set_title(f"{curve['task']}, {curve['cohort']:,} clients", fontsize=10)
    axes[0][0].set_ylabel("seconds per round (predicted)")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, metadata={"Date": None})


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--network", type=float, default=10.0, help="assumed bandwidth in Gbit/s")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="use the rounds in this file of --out")
    parser.add_argument("--out", type=Path, help="JSON file with all numbers")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write table and figure there")
    options = parser.parse_args(words)
    block = MarkedBlock(options.write, "cluster cost model") if options.write else None
    if options.measured:
        measured = json.loads(options.measured.read_text())
        points = [Point(**point) for point in measured["points"]]
        origin = {key: measured[key] for key in ("date", "commit", "machine")}
    else:
        points, origin = measure(options.repeats), measurement_origin()
    model = fit(points)
    sizes = {point.task: point.vector_bytes for point in points}
    curves = []
    for task, cohort in CURVES:
        rows = [predict(model, task, cohort, n, sizes[task], options.network) for n in PREDICTED]
        terms = {term: [row[term] for row in rows] for term in TERMS}
        curves.append({"task": task, "cohort": cohort, "terms": terms})
    result = {
        **origin,
        "network": options.network,
        "points": [point._asdict() for point in points],
        "fit": model._asdict(),
        "curves": curves,
    }
    if options.out:
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")
    lines = format_table(result)
    if block:
        figure = "![Predicted seconds per round against workers](figures/cluster_cost_model.svg)"
        block.write([*lines, "", figure])
        draw_figure(result, options.write.parent / "figures" / "cluster_cost_model.svg")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
