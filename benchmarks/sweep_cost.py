"""The cost of tuning beyond the training itself. Prints, on an otherwise idle machine:

(a) the time of a sweep on two workers, divided by half the total time of the same trials run one after the
    other. The trials are run once as `fedopt run` commands, and once in one worker process that has run a
    trial before, so that imports and data are not counted. Half of them run before the sweep and half
    after it, so that a machine that slows down affects both. Two trials at the same time share caches and
    memory bandwidth; their own slowdown is printed too.
(b) the time that a trial takes in such a process beyond the seconds that its run records.
(c) the rounds that successive halving and Optuna need as a share of the grid's, and the points they find.

    python benchmarks/sweep_cost.py [--out DIR] [--only a|c] [--quick]
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from fedopt.engine.executors import ExecutorOptions
from fedopt.reports import TRAIN_LOSS
from fedopt.tuning.command import sweep
from fedopt.tuning.grid import describe_point, grid_points, read_grid
from fedopt.tuning.optuna_search import default_budget, optuna_search
from fedopt.tuning.request import SweepRequest
from fedopt.tuning.runner import run_trials
from fedopt.tuning.scores import search_score
from fedopt.tuning.searches import Batch, Scores, plan_rungs, run_searches
from fedopt.tuning.trials import Trial, WorkItem, make_trial

WORKERS = 2
TARGET_RATIO, TARGET_START = 1.05, 1.0

# (a), (b): ten trials of fifteen to twenty seconds
COST_TASK, COST_GRID = "emnist_cr", "client_lr=-2.5:-0.5:0.5, server_lr=-0.5|0"
COST_SETTINGS = {"data.clients": 50, "clients_per_round": 5, "client.steps": 2, "eval.sample": 500}

# (c): a grid of 5 x 5 points with the best in the interior
SEARCH_TASK, SEARCH_ROUNDS, SAMPLER_SEEDS = "so_lr", 27, 20
SEARCH_GRIDS = {
    "fedavg": "client_lr=1:3:0.5, server_lr=-1.5:0.5:0.5",
    "fedadagrad": "client_lr=1:3:0.5, server_lr=-0.5:1.5:0.5",
}
SEARCH_SETTINGS = {
    "data.clients": 100,
    "client.steps": 2,
    "model.vocabulary": 1000,
    "eval.sample": 200,
    "checkpoint.every": 1000,
}


def recorded_seconds(trial: Trial) -> float:
    return float(json.loads((trial.path / "run.json").read_text())["seconds"])


def time_one_by_one(warm_up: Trial, trials: Sequence[Trial]) -> tuple[float, list[float]]:
    """Run trials one after the other in one worker. Return the warm-up's time and those of the trials."""
    times = [time.monotonic()]
    one_worker = ExecutorOptions(workers=1)
    run_trials([warm_up, *trials], one_worker, after=lambda trial: times.append(time.monotonic()))
    first, *others = [after - before for before, after in zip(times, times[1:], strict=False)]
    return first, others


def time_commands(trials: Sequence[Trial]) -> float:
    """Run the command of each trial and return the total time."""
    start = time.monotonic()
    for trial in trials:
        words = [sys.executable, "-m", *shlex.split(trial.command), "--workers", "1"]
        subprocess.run(words, check=True, capture_output=True)
    return time.monotonic() - start


def time_sweep(trials: Sequence[Trial]) -> float:
    start = time.monotonic()
    run_trials(trials, executor=ExecutorOptions(workers=WORKERS))
    return time.monotonic() - start


def measure_cost(out: Path, rounds: int) -> None:
    def make_trials(directory: str, rounds: int, grid: str) -> list[Trial]:
        settings = {**COST_SETTINGS, "rounds": rounds}
        return [
            make_trial(out / directory, COST_TASK, "fedavg", point, settings)
            for point in grid_points(read_grid(grid))
        ]

    (warm_up,), singles = make_trials("warm-up", 1, "client_lr=-3"), make_trials("alone", rounds, COST_GRID)
    commands, parallel = make_trials("commands", rounds, COST_GRID), make_trials("sweep", rounds, COST_GRID)
    command_time = time_commands(commands[::2])
    first, alone = time_one_by_one(warm_up, singles[::2])
    sweep_time = time_sweep(parallel)
    (warm_up,) = make_trials("warm-up-again", 1, "client_lr=-3")
    alone += time_one_by_one(warm_up, singles[1::2])[1]
    command_time += time_commands(commands[1::2])
    half, target = sum(alone) / 2, f"(target: at most {TARGET_RATIO})"
    print(f"(a) {len(singles)} trials of {COST_TASK}, {rounds} rounds each, on {WORKERS} workers")
    print(f"    sweep                              {sweep_time:7.1f} s")
    print(f"    one by one, as commands            {command_time:7.1f} s, half {command_time / 2:.1f} s")
    print(f"    ratio                              {sweep_time / (command_time / 2):7.3f}   {target}")
    print(f"    one by one, in one process         {sum(alone):7.1f} s, half {half:.1f} s")
    print(f"    ratio                              {sweep_time / half:7.3f}   {target}")
    slowdown = fmean(map(recorded_seconds, parallel)) / fmean(map(recorded_seconds, singles))
    print(f"    a parallel trial takes             {slowdown:7.3f} times as long as one alone")
    ordered = [*singles[::2], *singles[1::2]]
    extra = [seconds - recorded_seconds(trial) for seconds, trial in zip(alone, ordered, strict=True)]
    print("(b) time of a trial beyond its rounds")
    print(f"    first of a process                 {first - recorded_seconds(warm_up):7.2f} s")
    print(
        f"    others, median and maximum         {median(extra):7.2f} s and {max(extra):.2f} s   "
        f"(target: below {TARGET_START:g} s)",
        flush=True,
    )


def compare_searches(out: Path, algorithm: str, rounds: int) -> None:
    def run(search: str) -> dict[str, Any]:
        grid, settings = SEARCH_GRIDS[algorithm], {**SEARCH_SETTINGS, "rounds": rounds}
        request = SweepRequest(SEARCH_TASK, [algorithm], grid, settings, search=search)
        start = time.monotonic()
        result = sweep(request, WORKERS, out / f"{algorithm}-{search}")
        points, best = result.algorithms[0].points, result.algorithms[0].best
        assert best is not None and best.score is not None
        return {
            "rounds": result.rounds_run,
            "point": dict(best.point),
            "score": best.score.mean,
            "scores": [point.score.mean for point in points if point.score is not None],
            "seconds": time.monotonic() - start,
        }

    grid = run("grid")
    print(f"(c) {algorithm} on {SEARCH_TASK}, {len(grid['scores'])} points, {rounds} rounds each")
    for search in ("grid", "halving", "optuna"):
        result = grid if search == "grid" else run(search)
        rank = 1 + sum(score < result["score"] for score in grid["scores"])
        share, gap = result["rounds"] / grid["rounds"], result["score"] / grid["score"] - 1
        print(
            f"    {search:8} {result['rounds']:5} rounds ({share:6.1%} of the grid), "
            f"{result['seconds']:4.0f} s: {describe_point(result['point'])}, "
            f"train loss {result['score']:.4f} ({gap:+.1%}, rank {rank})",
            flush=True,
        )


def repeat_optuna(out: Path, algorithm: str, rounds: int) -> None:
    """Repeat the Optuna search with other sampler seeds, with the scores that the grid search recorded."""
    grid, settings = read_grid(SEARCH_GRIDS[algorithm]), {**SEARCH_SETTINGS, "rounds": rounds, "seed": 0}
    root = out / f"{algorithm}-grid" / "trials"
    trials = [make_trial(root, SEARCH_TASK, algorithm, point, settings) for point in grid_points(grid)]
    scores = [search_score(WorkItem(trial, rounds), TRAIN_LOSS) for trial in trials]
    best = min(score for score in scores if score is not None)
    shares, gaps = [], []
    for seed in range(SAMPLER_SEEDS):
        reached: dict[str, int] = {}
        complete: list[float] = []

        def run_batch(
            batch: Batch, reached: dict[str, int] = reached, complete: list[float] = complete
        ) -> Scores:
            results = [search_score(item, TRAIN_LOSS) for item in batch.items]
            for item, score in zip(batch.items, results, strict=True):
                reached[item.trial.key] = item.until
                if item.until == rounds and score is not None:
                    complete.append(score)
            return results

        search = optuna_search(
            grid, trials, plan_rungs(len(trials), rounds), default_budget(len(trials)), seed
        )
        run_searches([search], run_batch)
        shares.append(sum(reached.values()) / (rounds * len(trials)))
        gaps.append(min(complete) / best - 1)
    print(
        f"    optuna with {SAMPLER_SEEDS} sampler seeds: {median(shares):6.1%} of the grid (median), its "
        f"best in {sum(gap == 0 for gap in gaps)}, within 5 % of it in {sum(gap <= 0.05 for gap in gaps)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="keep the trials here")
    parser.add_argument("--only", choices=["a", "c"], help="(a) and (b), or (c)")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to check that it works")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        if arguments.only != "c":
            measure_cost(out / "cost", 2 if arguments.quick else 60)
        if arguments.only != "a":
            for algorithm in SEARCH_GRIDS:
                rounds = 3 if arguments.quick else SEARCH_ROUNDS
                compare_searches(out / "search", algorithm, rounds)
                repeat_optuna(out / "search", algorithm, rounds)


if __name__ == "__main__":
    main()
