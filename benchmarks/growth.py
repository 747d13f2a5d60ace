"""How speed and memory grow with the cohort, the population, the workers and the rounds of a run.

    python benchmarks/growth.py [AXIS ...] [--repeats 3] [--out FILE] [--write docs/performance.md]

Every number is of `fedopt run` in a fresh process, as a user starts it. The points of an axis take turns, as
often as is asked for; the first round of a run starts the workers' memory and is not counted. Memory is the
peak of the summed PSS (shared pages counted once) of all processes of a run, in one more run of each point
that is not timed. With `--write`, table and figure replace what stands between the markers of a document; the
figure goes to the folder `figures` beside it.
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

from fedopt.bench.command import commit, machine
from fedopt.bench.document import Block
from fedopt.bench.memory import Peak, family, megabytes
from fedopt.files import write_atomically

QUIET = {"eval.every": 10_000, "eval.sample": 100, "checkpoint.every": 10_000}


@dataclass(frozen=True)
class Axis:
    """One thing that grows, while the rest of a run stays as it is."""

    task: str
    what: str
    key: str  # the setting that is varied; "workers" is an option of its own
    points: tuple[int, ...]
    rounds: tuple[int, ...]  # for each point
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
        "a round takes as long as its clients together, memory stays",
    ),
    "population": Axis(
        "so_lr",
        "clients of the federation, 10 of them per round",
        "data.clients",
        (500, 5_000, 50_000, 342_477),
        (31, 31, 31, 31),
        (("client.steps", 2),),
        "a round takes the same time, memory grows by the clients' names and sizes",
    ),
    "workers": Axis(
        "emnist_cr",
        "worker processes, the paper's round",
        "workers",
        (1, 2),
        (4, 6),
        (),
        "twice the workers, half the time",
    ),
}


@dataclass(frozen=True)
class Point:
    value: int
    seconds: float  # of a round, the median over repeats
    low: float
    high: float
    start: float  # until the first round has begun
    memory: float | None


def command_of(axis: Axis, value: int, rounds: int, out: Path) -> list[str]:
    settings = {**QUIET, **dict(axis.settings)}
    workers = 2
    if axis.key == "workers":
        workers = value
    else:
        settings[axis.key] = value
    words = [sys.executable, "-m", "fedopt", "run", axis.task, "--rounds", str(rounds)]
    for key, setting in settings.items():
        words += ["--set", f"{key}={setting}"]
    return [*words, "--workers", str(workers), "--out", str(out)]


def seconds_of(out: Path) -> list[float]:
    """The clock of a run after each of its rounds."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["seconds"] for line in lines if line["split"] == "train"]


def run(axis: Axis, value: int, rounds: int) -> tuple[float, float]:
    """Seconds of a round, and until the first one began."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        began = time.monotonic()
        subprocess.run(command_of(axis, value, rounds, out), check=True, capture_output=True)
        wall, clock = time.monotonic() - began, seconds_of(out)
    return (clock[-1] - clock[0]) / (rounds - 1), wall - clock[-1]


def peak(axis: Axis, value: int) -> float | None:
    with tempfile.TemporaryDirectory() as scratch:
        words = command_of(axis, value, 2, Path(scratch) / "run")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with Peak(process.pid) as seen:
            if process.wait() != 0:
                raise SystemExit(f"{' '.join(words)} failed")
    return seen.megabytes


def measure(axis: Axis, repeats: int) -> list[Point]:
    times: dict[int, list[tuple[float, float]]] = {value: [] for value in axis.points}
    for _ in range(repeats):
        for value, rounds in zip(axis.points, axis.rounds, strict=True):
            times[value].append(run(axis, value, rounds))
            print(f"  {axis.key}={value}: {times[value][-1][0]:.4f} s a round", file=sys.stderr, flush=True)
    points = []
    for value, found in times.items():
        rounds_, starts = [t for t, _ in found], [s for _, s in found]
        memory = peak(axis, value)
        points.append(Point(value, median(rounds_), min(rounds_), max(rounds_), median(starts), memory))
    return points


def watch(rounds: int) -> list[tuple[int, float]]:
    """Memory of a long run of emnist_cr at the paper's settings, as (round, MB), about a hundred times."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        words = [
            sys.executable,
            "-m",
            "fedopt",
            "run",
            "emnist_cr",
            "--rounds",
            str(rounds),
            "--out",
            str(out),
        ]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seen: list[tuple[int, float]] = []
        every = max(rounds // 100, 1)
        while process.poll() is None:
            time.sleep(0.5)
            try:
                done = len(seconds_of(out))
            except (OSError, ValueError):  # not there yet, or its last line half-written
                continue
            if done and (not seen or done >= seen[-1][0] + every):
                now = megabytes(family(process.pid))
                if now is not None and process.poll() is None:
                    seen.append((done, now))
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(words)} failed")
    return seen


# -- what was measured, as a table and a figure


def table(result: dict[str, Any]) -> list[str]:
    where = result["machine"]
    lines = [
        f"{result['date']}, commit {result['commit'] or 'unknown'}, {where['cpu']} with {where['cores']} "
        f"cores, torch {where['torch']}; medians of {result['repeats']} runs (least-greatest).",
        "",
    ]
    for name, points in result["axes"].items():
        axis = AXES[name]
        lines += [
            f"**{name.capitalize()}**: `{axis.task}`, {axis.what}. Expected: {axis.expected}.",
            "",
            f"| {name} | seconds a round | rounds/s | clients/s | memory | start |",
            "|---:|---:|---:|---:|---:|---:|",
            *(_row(Point(**p), p["value"] if axis.key == "clients_per_round" else 10) for p in points),
            "",
        ]
    if watched := result.get("watched"):
        tenth = max(len(watched) // 10, 1)
        early, late = (median(mb for _, mb in part) for part in (watched[:tenth], watched[-tenth:]))
        lines += [
            f"**Rounds**: `fedopt run emnist_cr --rounds {result['watched_rounds']}`, the paper's settings, "
            f"looked at {len(watched)} times: {early:,.0f} MB in the first tenth, {late:,.0f} MB in the last "
            f"(medians), {max(mb for _, mb in watched):,.0f} MB at most.",
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


def draw(result: dict[str, Any], file: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedopt"  # the same figure is the same file
    from matplotlib import pyplot

    columns = [*result["axes"], *(["rounds"] if result.get("watched") else [])]
    figure, axes = pyplot.subplots(2, len(columns), figsize=(3.4 * len(columns), 5), squeeze=False)
    for place, name in enumerate(columns):
        speed, memory = axes[0][place], axes[1][place]
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
        for one in (speed, memory):
            if name != "workers":
                one.set_xscale("log")
            else:
                one.set_xticks(x)
        speed.set_title(f"{name} ({AXES[name].task})", fontsize=10)
    axes[0][0].set_ylabel("seconds a round")
    axes[1][0].set_ylabel("memory, MB")
    figure.tight_layout()
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, metadata={"Date": None})


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"{', '.join(AXES)}, rounds; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300, help="of the run that is watched")
    parser.add_argument("--out", type=Path, help="keep the numbers in this JSON file, and add to those there")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="put table and figure there")
    asked = parser.parse_args(words)
    names = asked.axes or [*AXES, "rounds"]
    if unknown := set(names) - {*AXES, "rounds"}:
        parser.error(f"unknown axis {min(unknown)!r}; there are {', '.join(AXES)} and rounds")
    block = Block(asked.write, "growth") if asked.write else None
    result: dict[str, Any] = {"axes": {}}
    if asked.out and asked.out.exists():
        result = json.loads(asked.out.read_text())
    result |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": machine(),
        "repeats": asked.repeats,
    }
    for name in names:
        print(name, file=sys.stderr, flush=True)
        if name == "rounds":
            result["watched"], result["watched_rounds"] = watch(asked.rounds), asked.rounds
        else:
            result["axes"][name] = [vars(p) for p in measure(AXES[name], asked.repeats)]
        if asked.out:
            write_atomically(asked.out, json.dumps(result, indent=1))
    lines = table(result)
    print("\n".join(lines))
    if block:
        draw(result, asked.write.parent / "figures" / "growth.svg")
        block.write(
            [f"![seconds a round and memory against {', '.join(names)}](figures/growth.svg)", "", *lines]
        )


if __name__ == "__main__":
    main()
