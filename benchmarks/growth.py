"""Measure speed and memory of a run against cohort size, population, workers and rounds.

    python benchmarks/growth.py [AXIS ...] [--repeats 3] [--out FILE] [--write docs/performance.md]

Each number comes from `fedopt run` in a new process. The points of an axis are measured in alternation. The
first round of a run is not counted, because workers allocate memory in it. Memory is the peak of the summed
PSS (shared pages counted once) of all processes, from a separate run that is not timed. With `--write`, table
and figure replace the text between the markers of the document; the figure is saved in `figures` next to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from speed.memory import PeakMemory, process_tree, total_megabytes
from speed.origin import MarkedBlock, measurement_origin

from fedopt.files import write_atomically

RARE_EVALUATION = {"eval.every": 10_000, "eval.sample": 100, "checkpoint.every": 10_000}


@dataclass(frozen=True)
class Axis:
    """One quantity that is varied while all other settings are fixed."""

    task: str
    description: str
    key: str  # the configuration key that is varied; "workers" is the option --workers
    points: tuple[int, ...]
    rounds: tuple[int, ...]  # per point
    settings: tuple[tuple[str, Any], ...] = ()
    expected: str = ""


AXES = {
    "cohort": Axis(
        "emnist_cr",
        "clients per round, one step of 20 images each",
        "clients_per_round",
        (10, 30, 100, 300, 1000),
        (31, 11, 6, 4, 3),
        (("client.steps", 1),),
        "round time proportional to the cohort, constant memory",
    ),
    "population": Axis(
        "so_lr",
        "clients in the federation, 10 per round",
        "data.clients",
        (500, 5_000, 50_000, 342_477),
        (31, 31, 31, 31),
        (("client.steps", 2),),
        "constant round time; memory grows by the names and sizes of the clients",
    ),
    "workers": Axis(
        "emnist_cr",
        "worker processes, the paper's round",
        "workers",
        (1, 2),
        (4, 6),
        (),
        "half the time with twice the workers",
    ),
}


@dataclass(frozen=True)
class Point:
    """Measurements at one value of an axis."""

    value: int
    seconds: float  # per round, median over repeats
    low: float
    high: float
    start: float  # seconds before the first round
    memory: float | None  # MB


def build_command(axis: Axis, value: int, rounds: int, out: Path) -> list[str]:
    settings = {**RARE_EVALUATION, **dict(axis.settings)}
    workers = 2
    if axis.key == "workers":
        workers = value
    else:
        settings[axis.key] = value
    words = [sys.executable, "-m", "fedopt", "run", axis.task, "--rounds", str(rounds)]
    for key, setting in settings.items():
        words += ["--set", f"{key}={setting}"]
    return [*words, "--workers", str(workers), "--out", str(out)]


def read_seconds(out: Path) -> list[float]:
    """Return the elapsed seconds of a run after each round."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["seconds"] for line in lines if line["split"] == "train"]


def time_run(axis: Axis, value: int, rounds: int) -> tuple[float, float]:
    """Return the seconds per round, and the seconds before the first round."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        start = time.monotonic()
        subprocess.run(build_command(axis, value, rounds, out), check=True, capture_output=True)
        wall, elapsed = time.monotonic() - start, read_seconds(out)
    return (elapsed[-1] - elapsed[0]) / (rounds - 1), wall - elapsed[-1]


def measure_peak_memory(axis: Axis, value: int) -> float | None:
    with tempfile.TemporaryDirectory() as scratch:
        words = build_command(axis, value, 2, Path(scratch) / "run")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with PeakMemory(process.pid) as peak:
            if process.wait() != 0:
                raise SystemExit(f"{' '.join(words)} failed")
    return peak.megabytes


def measure_axis(axis: Axis, repeats: int) -> list[Point]:
    times: dict[int, list[tuple[float, float]]] = {value: [] for value in axis.points}
    for _ in range(repeats):
        for value, rounds in zip(axis.points, axis.rounds, strict=True):
            times[value].append(time_run(axis, value, rounds))
            print(f"  {axis.key}={value}: {times[value][-1][0]:.4f} s per round", file=sys.stderr, flush=True)
    points = []
    for value, pairs in times.items():
        seconds, starts = zip(*pairs, strict=True)
        memory = measure_peak_memory(axis, value)
        points.append(Point(value, median(seconds), min(seconds), max(seconds), median(starts), memory))
    return points


def sample_memory(rounds: int) -> list[tuple[int, float]]:
    """Return about 100 pairs (round, MB) from a long run of emnist_cr at the paper's settings."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        words = [sys.executable, "-m", "fedopt", "run", "emnist_cr"]
        words += ["--rounds", str(rounds), "--out", str(out)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        samples: list[tuple[int, float]] = []
        interval = max(rounds // 100, 1)
        while process.poll() is None:
            time.sleep(0.5)
            try:
                done = len(read_seconds(out))
            except (OSError, ValueError):  # the file does not exist yet, or its last line is incomplete
                continue
            if done and (not samples or done >= samples[-1][0] + interval):
                now = total_megabytes(process_tree(process.pid))
                if now is not None and process.poll() is None:
                    samples.append((done, now))
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(words)} failed")
    return samples


def format_table(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    lines = [
        f"{result['date']}, commit {result['commit'] or 'unknown'}, {machine['cpu']} with {machine['cores']} "
        f"cores, torch {machine['torch']}; medians of {result['repeats']} runs (minimum-maximum).",
        "",
    ]
    for name, points in result["axes"].items():
        axis = AXES[name]
        lines += [
            f"**{name.capitalize()}**: `{axis.task}`, {axis.description}. Expected: {axis.expected}.",
            "",
            f"| {name} | seconds per round | rounds/s | clients/s | memory | start |",
            "|---:|---:|---:|---:|---:|---:|",
            *(_row(Point(**p), p["value"] if axis.key == "clients_per_round" else 10) for p in points),
            "",
        ]
    if samples := result.get("watched"):
        tenth = max(len(samples) // 10, 1)
        early, late = (median(mb for _, mb in part) for part in (samples[:tenth], samples[-tenth:]))
        lines += [
            f"**Rounds**: `fedopt run emnist_cr --rounds {result['watched_rounds']}`, the paper's settings, "
            f"{len(samples)} samples: {early:,.0f} MB in the first tenth, {late:,.0f} MB in the last tenth "
            f"(medians), maximum {max(mb for _, mb in samples):,.0f} MB.",
            "",
        ]
    return lines


def _row(p: Point, clients: int) -> str:
    memory = "-" if p.memory is None else f"{p.memory:,.0f} MB"
    cells = [
        f"{p.value:,}",
        f"{p.seconds:.3g} ({p.low:.3g}-{p.high:.3g})",
        f"{1 / p.seconds:.3g}",
        f"{clients / p.seconds:.3g}",
        memory,
        f"{p.start:.1f} s",
    ]
    return f"| {' | '.join(cells)} |"


def draw_figure(result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedopt"  # equal figures give equal files
    from matplotlib import pyplot

    columns = [*result["axes"], *(["rounds"] if result.get("watched") else [])]
    figure, axes = pyplot.subplots(2, len(columns), figsize=(3.4 * len(columns), 5), squeeze=False)
    for column, name in enumerate(columns):
        speed, memory = axes[0][column], axes[1][column]
        memory.set_xlabel(name)
        if name == "rounds":
            speed.axis("off")
            memory.plot(*zip(*result["watched"], strict=True), color="#0072b2")
            memory.set_ylim(0, 1.1 * memory.get_ylim()[1])
            continue
        points = result["axes"][name]
        x, y = [p["value"] for p in points], [p["seconds"] for p in points]
        errors = [[p["seconds"] - p["low"] for p in points], [p["high"] - p["seconds"] for p in points]]
        speed.errorbar(x, y, errors, marker="o", color="#0072b2", capsize=3)
        memory.plot(x, [p["memory"] for p in points], marker="o", color="#d55e00")
        memory.set_ylim(0, 1.1 * memory.get_ylim()[1])
        if name == "cohort":
            speed.set_yscale("log")
            speed.plot(x, [y[0] / x[0] * v for v in x], ":", color="#777777", label="linear")
            speed.legend(frameon=False)
        else:
            speed.set_ylim(0, 1.1 * speed.get_ylim()[1])
        for plot in (speed, memory):
            if name == "workers":
                plot.set_xticks(x)
            else:
                plot.set_xscale("log")
        speed.set_title(f"{name} ({AXES[name].task})", fontsize=10)
    axes[0][0].set_ylabel("seconds per round")
    axes[1][0].set_ylabel("memory, MB")
    figure.tight_layout()
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, metadata={"Date": None})


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"{', '.join(AXES)}, rounds; default: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300, help="length of the run for the axis rounds")
    parser.add_argument("--out", type=Path, help="JSON file with all numbers; existing numbers are kept")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write table and figure there")
    options = parser.parse_args(words)
    names = options.axes or [*AXES, "rounds"]
    if unknown := set(names) - {*AXES, "rounds"}:
        parser.error(f"unknown axis {min(unknown)!r}; allowed: {', '.join(AXES)}, rounds")
    block = MarkedBlock(options.write, "growth") if options.write else None
    result: dict[str, Any] = {"axes": {}}
    if options.out and options.out.exists():
        result = json.loads(options.out.read_text())
    result |= {**measurement_origin(), "repeats": options.repeats}
    for name in names:
        print(name, file=sys.stderr, flush=True)
        if name == "rounds":
            result["watched"], result["watched_rounds"] = sample_memory(options.rounds), options.rounds
        else:
            result["axes"][name] = [vars(p) for p in measure_axis(AXES[name], options.repeats)]
        if options.out:
            write_atomically(options.out, json.dumps(result, indent=1))
    lines = format_table(result)
    print("\n".join(lines))
    if block:
        draw_figure(result, options.write.parent / "figures" / "growth.svg")
        block.write(
            [f"![seconds per round and memory against {', '.join(names)}](figures/growth.svg)", "", *lines]
        )


if __name__ == "__main__":
    main()
