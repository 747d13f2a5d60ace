"""Predict the time of a round on a cluster from measurements on one machine.

    python benchmarks/cluster_cost_model.py [--repeats 5] [--network 10] [--out FILE] [--write DOCUMENT]

The model of a round has four terms:

    compute      seconds per step x steps of the busiest worker, from the division of the cohort into pieces
    reduction    seconds per byte x bytes of all answers: the driver reads and adds them one after the other
    broadcast    bytes of x / bandwidth x ceil(log2(nodes + 1)): nodes that have x pass it on
    transfer     bytes of all answers / bandwidth: all of them reach the driver through one network card

Rounds of two tasks with several cohorts are timed on one and two workers of Ray. A least-squares fit gives
seconds per step of each task, seconds per answered byte, seconds per broadcast byte and a constant. Broadcast
and transfer over a network cannot be measured on one machine; `--network` sets the assumed Gbit/s.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import tempfile
from collections.abc import Sequence
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from fedopt.bench.engine_rounds import EngineRounds
from fedopt.bench.environment import describe_origin, measurement_origin
from fedopt.bench.marked_block import MarkedBlock
from fedopt.bench.workload import build_workload
from fedopt.engine.executors.ray.connection import connected
from fedopt.engine.executors.ray.pieces import split_cohort
from fedopt.files import write_atomically

TASKS = ("emnist_cr", "so_nwp")
COHORTS = (8, 16, 32)
WORKERS = (1, 2)
WORKERS_PER_NODE = 16
PREDICTED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
STEPS = 20  # of a client in the prediction, about one epoch of the paper's tasks
TERMS = ("compute", "reduction", "broadcast", "transfer")


class Point(NamedTuple):
    """A measured round."""

    task: str
    workers: int
    steps: tuple[int, ...]  # of each client
    vector_bytes: int
    seconds: float


class Fit(NamedTuple):
    """The constants of the model."""

    per_step: dict[str, float]
    per_answered_byte: float
    per_broadcast_byte: float
    constant: float
    error: float  # largest relative error over the measured rounds


class Schedule(NamedTuple):
    """The pieces of a round on a number of workers."""

    steps: int  # of the busiest worker
    answers: int


def schedule(steps: Sequence[int], workers: int) -> Schedule:
    """Give the pieces of a cohort to workers as these become free."""
    jobs: Any = list(range(len(steps)))
    pieces = [piece for block in split_cohort(jobs, steps, workers) for piece in block]
    loads = [0] * workers
    for piece in pieces:
        heapq.heappushpop(loads, loads[0] + piece.steps)
    return Schedule(max(loads), len(pieces))


def measure(repeats: int) -> list[Point]:
    """Time rounds of all tasks, cohorts and numbers of workers."""
    points = []
    with tempfile.TemporaryDirectory() as scratch, connected(None, max(WORKERS)):
        for task in TASKS:
            for clients in COHORTS:
                workload = build_workload(task, Path(scratch, f"{task}-{clients}"), clients, 1)
                for workers in WORKERS:
                    rounds = EngineRounds(workload, workers, "ray", record_times=False)
                    seconds = median(rounds.run_round().seconds for _ in range(repeats))
                    rounds.close()
                    ordered = tuple(sorted(workload.steps, reverse=True))
                    points.append(Point(task, workers, ordered, workload.x.nbytes, seconds))
                    print(f"  {task}, {clients} clients, {workers} workers: {seconds:.3f} s", file=sys.stderr)
    return points


def fit(points: Sequence[Point]) -> Fit:
    """Fit the model by least squares with relative errors and constants of at least zero."""
    rows = []
    for point in points:
        planned = schedule(point.steps, point.workers)
        per_step = [planned.steps if point.task == task else 0 for task in TASKS]
        rows.append([*per_step, planned.answers * point.vector_bytes, point.vector_bytes, 1.0])
    seconds = np.array([point.seconds for point in points])
    matrix = np.array(rows) / seconds[:, None]
    scale = matrix.max(axis=0)
    solution, _ = nnls(matrix / scale, np.ones(len(points)))
    constants = solution / scale
    error = float(np.abs(matrix @ constants - 1).max())
    return Fit(dict(zip(TASKS, map(float, constants), strict=False)), *map(float, constants[2:]), error)


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
        "compute": model.per_step[task] * planned.steps,
        "reduction": model.per_answered_byte * planned.answers * vector_bytes + model.constant,
        "broadcast": vector_bytes * (model.per_broadcast_byte + hops / bytes_per_second),
        "transfer": answered / bytes_per_second,
    }


def format_table(result: dict[str, Any]) -> list[str]:
    model = Fit(**result["fit"])
    headings = [f"`{curve['task']}`, {curve['cohort']:,} clients" for curve in result["curves"]]
    steps = ", ".join(f"{1e3 * value:.1f} ms (`{task}`)" for task, value in model.per_step.items())
    lines = [
        "",
        f"{describe_origin(result)}. Fitted to {len(result['points'])} measured rounds: a step takes "
        f"{steps}, an answered megabyte {1e9 * model.per_answered_byte:.2f} ms on the driver; largest "
        f"relative error {100 * model.error:.0f} %. Assumed: {result['network']:g} Gbit/s, "
        f"{WORKERS_PER_NODE} workers per node, {STEPS} steps per client.",
        "",
        f"| workers | {' | '.join(headings)} |",
        "|---:|" + "---:|" * len(result["curves"]),
    ]
    for number, workers in enumerate(PREDICTED):
        cells = []
        for curve in result["curves"]:
            terms = {term: curve["terms"][term][number] for term in TERMS}
            limit = max(terms, key=lambda term: terms[term])
            cells.append(f"{sum(terms.values()):.3g} s ({limit})")
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
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--network", type=float, default=10.0, help="assumed bandwidth in Gbit/s")
    parser.add_argument("--out", type=Path, help="JSON file with all numbers")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write table and figure there")
    options = parser.parse_args(words)
    block = MarkedBlock(options.write, "cluster cost model") if options.write else None
    points = measure(options.repeats)
    model = fit(points)
    sizes = {point.task: point.vector_bytes for point in points}
    curves = []
    for task, cohort in (("emnist_cr", 1_000), ("so_nwp", 1_000), ("so_nwp", 10_000)):
        rows = [predict(model, task, cohort, n, sizes[task], options.network) for n in PREDICTED]
        terms = {term: [row[term] for row in rows] for term in TERMS}
        curves.append({"task": task, "cohort": cohort, "terms": terms})
    result = {
        **measurement_origin(),
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
