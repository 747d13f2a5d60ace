"""What tuning costs beyond the training itself. Prints, on a machine that is otherwise idle:

(a) the time of a sweep on two slots, divided by half the summed time of the same trials run alone, one
    after the other with one worker. Twice: as commands, `fedopt run`, which is what a user would run; and
    in a process that has run a trial before, so that imports and data are not counted, though they are for
    the sweep, which starts its slots first. Half of the trials are run alone before the sweep and half after
    it, so that a machine that slows down does so for both. And what two processes of trials side by side
    lose against one alone, because cores share caches and memory: no sweep can do better than that.
(b) the time from ordering a trial to the beginning of its training, in a slot that has run one before:
    what a trial costs beyond its rounds. The first trial of a slot imports and opens the data.
(c) the rounds that successive halving and Optuna need, as a share of the grid's, and what they found.

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
from statistics import median
from typing import Any

from fedopt.sweep.command import sweep
from fedopt.sweep.grid import describe, points, read_grid
from fedopt.sweep.pool import Judge, Pool
from fedopt.sweep.progress import SweepProgress
from fedopt.sweep.results import Asked
from fedopt.sweep.searches import GridSearch
from fedopt.sweep.slots import Order
from fedopt.sweep.tpe import Tpe, default_budget
from fedopt.sweep.trials import TRAIN_LOSS, Trial, trial

SLOTS = 2
GOAL_RATIO, GOAL_START = 1.05, 1.0

# (a), (b): ten trials of fifteen to twenty seconds
COST_TASK, COST_GRID = "emnist_cr", "client_lr=-2.5:-0.5:0.5, server_lr=-0.5|0"
COST_SETTINGS = {"data.clients": 50, "clients_per_round": 5, "client.steps": 2, "eval.sample": 500}

# (c): a grid of 5 x 5 with the best well inside
FIND_TASK, FIND_ROUNDS, SEEDS = "so_lr", 27, 20
FIND_GRIDS = {
    "fedavg": "client_lr=1:3:0.5, server_lr=-1.5:0.5:0.5",
    "fedadagrad": "client_lr=1:3:0.5, server_lr=-0.5:1.5:0.5",
}
FIND_SETTINGS = {
    "data.clients": 100,
    "client.steps": 2,
    "model.vocabulary": 1000,
    "eval.sample": 200,
    "checkpoint.every": 1000,
}


class Watch(SweepProgress):
    """Notes when each trial was ordered, first heard of, and over."""

    def __init__(self, orders: int) -> None:
        super().__init__("trials", orders, 0)
        self.ordered: dict[str, float] = {}
        self.heard: dict[str, float] = {}
        self.over: dict[str, float] = {}

    def started(self, order: Order) -> None:
        super().started(order)
        self.ordered[order.key] = time.monotonic()

    def advanced(self, order: Order, round: int) -> None:
        super().advanced(order, round)
        self.heard.setdefault(order.key, time.monotonic())

    def ended(self, order: Order, status: str, score: float | None, ran: bool) -> None:
        self.over[order.key] = time.monotonic()
        super().ended(order, status, score, ran)


def run_on(slots: int, trials: Sequence[Trial]) -> Watch:
    with Watch(len(trials)) as watch:
        orders = GridSearch([Order(one, one.config.rounds) for one in trials])
        Pool(orders, Judge(TRAIN_LOSS), slots, watch).run()
    return watch


def run_alone(warm_up: Trial, trials: Sequence[Trial]) -> list[float]:
    """The times of the trials, one after the other in one process that is warm."""
    return durations(run_on(1, [warm_up, *trials]), trials)


def durations(watch: Watch, trials: Sequence[Trial]) -> list[float]:
    return [watch.over[str(one.path)] - watch.ordered[str(one.path)] for one in trials]


def run_commands(trials: Sequence[Trial]) -> float:
    """The time of the trials as a user would run them by hand."""
    began = time.monotonic()
    for one in trials:
        words = [sys.executable, "-m", *shlex.split(one.command), "--workers", "1"]
        subprocess.run(words, check=True, capture_output=True)
    return time.monotonic() - began


def run_side_by_side(trials: Sequence[Trial]) -> tuple[float, list[float], list[float]]:
    """The time of a sweep, what starting each trial took, and the times of the trials."""
    began = time.monotonic()
    watch = run_on(SLOTS, trials)
    seconds = time.monotonic() - began
    starts = []
    for one in trials:
        first = json.loads((one.path / "metrics.jsonl").read_text().splitlines()[0])
        assert first["round"] == 0  # heard of first, when the untrained model was measured
        key = str(one.path)
        starts.append(watch.heard[key] - watch.ordered[key] - first["seconds"])
    return seconds, starts, durations(watch, trials)


def cost(out: Path, rounds: int) -> None:
    def trials(place: str, rounds: int, grid: str) -> list[Trial]:
        settings = {**COST_SETTINGS, "rounds": rounds}
        return [trial(out / place, COST_TASK, "fedavg", p, settings) for p in points(read_grid(grid))]

    (warm_up, *_), singly = trials("warm", 1, "client_lr=-3"), trials("alone", rounds, COST_GRID)
    by_hand = trials("commands", rounds, COST_GRID)
    commands = run_commands(by_hand[::2])
    alone = run_alone(warm_up, singly[::2])
    together, starts, beside = run_side_by_side(trials("sweep", rounds, COST_GRID))
    (warm_up, *_) = trials("warm again", 1, "client_lr=-3")
    alone += run_alone(warm_up, singly[1::2])
    commands += run_commands(by_hand[1::2])
    half, goal = sum(alone) / 2, f"(goal: {GOAL_RATIO} or less)"
    print(f"(a) {len(singly)} trials of {COST_TASK}, {rounds} rounds each, on {SLOTS} slots")
    print(f"    the sweep                          {together:7.1f} s")
    print(f"    run alone, as commands             {commands:7.1f} s, half of it {commands / 2:.1f} s")
    print(f"    ratio                              {together / (commands / 2):7.3f}   {goal}")
    print(f"    run alone in a warm process        {sum(alone):7.1f} s, half of it {half:.1f} s")
    print(f"    ratio                              {together / half:7.3f}   {goal}")
    shared = sum(beside[SLOTS:]) / len(beside[SLOTS:]) / (sum(alone) / len(alone))
    print(f"    a trial beside another takes       {shared:7.3f} times as long as alone")
    print("(b) starting a trial, before its training begins")
    print(f"    the first of each slot             {max(starts[:SLOTS]):7.2f} s, with imports and data")
    print(
        f"    all others, median and longest     {median(starts[SLOTS:]):7.2f} s and "
        f"{max(starts[SLOTS:]):.2f} s   (goal: below {GOAL_START:g} s)",
        flush=True,
    )


def find(out: Path, algorithm: str, rounds: int) -> None:
    def run(search: str) -> dict[str, Any]:
        grid, settings = FIND_GRIDS[algorithm], {**FIND_SETTINGS, "rounds": rounds}
        asked = Asked(FIND_TASK, [algorithm], grid, settings, search=search)
        began = time.monotonic()
        swept = sweep(asked, SLOTS, out / f"{algorithm}-{search}")
        best = swept.tuned[0].best
        assert best is not None and best.score is not None
        return {
            "rounds": swept.rounds_run,
            "point": dict(best.point),
            "score": best.score.mean,
            "scores": [c.score.mean for c in swept.tuned[0].candidates if c.score is not None],
            "seconds": time.monotonic() - began,
        }

    whole = run("grid")
    print(f"(c) {algorithm} on {FIND_TASK}, {len(whole['scores'])} points, {rounds} rounds each")
    for search in ("grid", "halving", "optuna"):
        found = whole if search == "grid" else run(search)
        place = 1 + sum(score < found["score"] for score in whole["scores"])
        share, gap = found["rounds"] / whole["rounds"], found["score"] / whole["score"] - 1
        print(
            f"    {search:8} {found['rounds']:5} rounds ({share:6.1%} of the grid), {found['seconds']:4.0f} s"
            f": {describe(found['point'])}, train loss {found['score']:.4f} ({gap:+.1%}, place {place})",
            flush=True,
        )


def replay(out: Path, algorithm: str, rounds: int) -> None:
    """Optuna with other seeds of its sampler, answered from the grid's trials: is one search luck?"""
    grid, settings = read_grid(FIND_GRIDS[algorithm]), {**FIND_SETTINGS, "rounds": rounds, "seed": 0}
    root = out / f"{algorithm}-grid" / "trials"
    trials = [trial(root, FIND_TASK, algorithm, point, settings) for point in points(grid)]
    judge = Judge(TRAIN_LOSS)
    whole = {str(one.path): judge.score(one, rounds) for one in trials}
    best = min(score for score in whole.values() if score is not None)
    shares, gaps = [], []
    for seed in range(SEEDS):
        search = Tpe(grid, trials, rounds, default_budget(len(trials)), seed=seed)
        run, found = 0, float("inf")
        while (order := search.next()) is not None:
            stops = (
                at for at in order.asks if not search.goes_on(order.trial, at, judge.score(order.trial, at))
            )
            at = next(stops, rounds)
            score = whole[order.key] if at == rounds else None
            run, found = run + at, min(found, float("inf") if score is None else score)
            search.finished(order, score)
        shares.append(run / (rounds * len(trials)))
        gaps.append(found / best - 1)
    print(
        f"    optuna with {SEEDS} seeds of its sampler: {median(shares):6.1%} of the grid (median), "
        f"its best in {sum(gap == 0 for gap in gaps)}, within 5 % of it in "
        f"{sum(gap <= 0.05 for gap in gaps)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="keep the trials here")
    parser.add_argument("--only", choices=["a", "c"], help="(a) and (b), or (c)")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that it works")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        if arguments.only != "c":
            cost(out / "cost", 2 if arguments.quick else 60)
        if arguments.only != "a":
            for algorithm in FIND_GRIDS:
                length = 3 if arguments.quick else FIND_ROUNDS
                find(out / "find", algorithm, length)
                replay(out / "find", algorithm, length)


if __name__ == "__main__":
    main()
