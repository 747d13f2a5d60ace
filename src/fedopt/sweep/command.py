"""`fedopt sweep`: from what was asked to trials on disk."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedopt.errors import UserError, unknown
from fedopt.files import lock_directory, write_atomically
from fedopt.runs import tensorboard
from fedopt.runs.build_problem import build_problem
from fedopt.runs.discover import SWEEP
from fedopt.sweep.grid import Grid, Point, applicable, check_grid, describe, paper_grid, points, read_grid
from fedopt.sweep.pool import Judge, Pool, check_workers
from fedopt.sweep.progress import SweepProgress
from fedopt.sweep.results import Asked, Swept, Tuned, tuned_of, write_results
from fedopt.sweep.searches import GridSearch, Halving, Search, Several, halving_sizes, seen_rungs
from fedopt.sweep.slots import Order
from fedopt.sweep.trials import TRAIN_LOSS, Trial, check_selection, recorded, score, trial
from fedopt.tasks import find_task

SEARCHES = ("grid", "halving", "optuna")
KEEP = ("best", "all")  # whose checkpoints stay when the sweep is over


class Plan(NamedTuple):
    """One algorithm's part: its grid and, for each point, its trials, one per seed."""

    algorithm: str
    grid: Grid
    candidates: list[list[Trial]]

    @property
    def rounds(self) -> int:
        """Of a full trial; the default is the algorithm's own."""
        return self.candidates[0][0].config.rounds

    @property
    def trials(self) -> list[Trial]:
        return [trial for seeds in self.candidates for trial in seeds]


def sweep(asked: Asked, workers: int | None, out: Path | None) -> Swept:
    """Tune each algorithm; what is in `out` already is not run again.

    All that can be refused is refused before the first round.
    """
    check_workers(workers)
    if asked.tensorboard:
        tensorboard.require()
    grids = _grids(asked)
    out = out or default_directory(asked, grids)
    plans = [_plan(asked, out, name, grid) for name, grid in grids.items()]
    for plan in plans:
        _check_known(plan, asked.select)
    search, orders, work = _search(asked, plans)
    if asked.data != "synthetic":  # data that does not fit the task is refused before anything is written
        config = plans[0].trials[0].config
        build_problem(find_task(asked.task), config).federation()
    with _claimed(out, asked.task):
        _write_plan(asked, plans, out)
        with SweepProgress(f"sweep {asked.task}", orders, work) as progress:
            for text in without_tau(asked, grids):
                progress.say(text)
            Pool(search, Judge(asked.select), workers, progress).run()
        if asked.tensorboard:
            _complete_events(plans)
        tuned = [tuned_of(asked, p.algorithm, p.grid, p.candidates, p.rounds) for p in plans]
        swept = Swept(asked, tuned, out, without_tau(asked, grids))
        write_results(swept)
        if asked.keep == "best":
            _drop_checkpoints(tuned)
    return swept


def _grids(asked: Asked) -> dict[str, Grid]:
    task = find_task(asked.task)
    names = list(asked.algorithms)
    if not names:
        raise UserError("--algorithm names none; for example --algorithm fedavg,fedadagrad")
    if len(set(names)) < len(names):
        raise UserError("--algorithm names one twice; a sweep has one grid for each")
    if asked.search not in SEARCHES:
        raise unknown("search", asked.search, SEARCHES)
    if asked.keep not in KEEP:
        raise unknown("value of --keep", asked.keep, KEEP)
    if asked.search != "grid" and len(asked.seeds) > 1:
        raise UserError(
            f"--seeds with --search {asked.search}: several seeds are for --search grid; leave one out"
        )
    if asked.trials is not None and (asked.search != "optuna" or asked.trials < 1):
        raise UserError("--trials is for --search optuna, and at least 1")
    check_selection(task, asked.select)
    given = None if asked.grid.strip() == "paper" else read_grid(asked.grid)
    grids: dict[str, Grid] = {}
    for name in names:
        if given is None:
            grids[name] = paper_grid(task, name, asked.settings)
        else:
            grids[name] = applicable(given, task, name, asked.settings)
        if not grids[name]:
            raise UserError(
                f"--grid has only tau, which {name} has not; give client_lr or server_lr too, or leave "
                f"{name} out"
            )
        check_grid(grids[name], asked.settings)
    return grids


def without_tau(asked: Asked, grids: Mapping[str, Grid]) -> list[str]:
    """A line for each algorithm that has no tau where the user gave one: its grid is smaller than written."""
    if asked.grid.strip() == "paper" or "tau" not in read_grid(asked.grid):
        return []
    return [
        f"{name} has no tau, so its grid has the {math.prod(map(len, grid.values()))} points of "
        f"{' and '.join(grid)}"
        for name, grid in grids.items()
        if "tau" not in grid
    ]


def _plan(asked: Asked, out: Path, algorithm: str, grid: Grid) -> Plan:
    settings = dict(asked.settings)
    if find_task(asked.task).full_test_at_end and asked.data != "synthetic":
        # selection never looks at the full test set, which takes longer than many a trial
        settings.setdefault("eval.final", "sample")

    def one(point: Point, seed: int) -> Trial:
        seeded = {**settings, "seed": seed}
        return trial(out / "trials", asked.task, algorithm, point, seeded, asked.data, asked.tensorboard)

    return Plan(algorithm, grid, [[one(point, seed) for seed in asked.seeds] for point in points(grid)])


def _check_known(plan: Plan, select: str) -> None:
    """Refuse trials on disk that are damaged, or too long to say what a shorter one would have scored."""
    for t in plan.trials:
        record = recorded(t)
        if record is None or select == TRAIN_LOSS or record.rounds <= plan.rounds:
            continue
        if score(record, select, plan.rounds) is None:
            raise UserError(
                f"{t.path} was run for {record.rounds} rounds and not evaluated after {plan.rounds}, so its "
                f"{select} there is not known; use --rounds {record.rounds}, --select {TRAIN_LOSS} or "
                "another --out"
            )


def default_directory(asked: Asked, grids: Mapping[str, Grid]) -> Path:
    """runs/TASK/sweep-HASH: the same sweep finds its trials again, whatever its length."""
    settings = {key: value for key, value in asked.settings.items() if key != "rounds"}
    parts = [grids, settings, list(asked.seeds), asked.data]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:6]
    return Path("runs") / asked.task / f"sweep-{digest}"


def _search(asked: Asked, plans: Sequence[Plan]) -> tuple[Search, int, int]:
    """The search, how many orders it will give, and the rounds that they take, as far as that is known."""
    if asked.search == "grid":
        orders = [Order(t, plan.rounds) for plan in plans for t in plan.trials]
        return GridSearch(orders), len(orders), sum(order.rounds for order in orders)
    searches: list[Search] = []
    number = work = 0
    for plan in plans:
        trials = plan.trials
        steps = seen_rungs(len(trials), trials[0].config, asked.select)
        if asked.search == "halving":
            searches.append(Halving(trials, plan.rounds, steps))
            sizes = halving_sizes(len(trials), steps)
            number += sum(sizes)
            work += sum(n * (b - a) for n, a, b in zip(sizes, [0, *steps], steps, strict=False))
        else:
            from fedopt.sweep.tpe import Tpe, default_budget

            budget = min(len(trials), asked.trials or default_budget(len(trials)))
            searches.append(Tpe(plan.grid, trials, plan.rounds, budget, steps))
            number, work = number + budget, work + budget * plan.rounds
    return Several(searches), number, work


def _complete_events(plans: Sequence[Plan]) -> None:
    """Event files of trials that were over before anybody asked for them."""
    for record in (recorded(t) for plan in plans for t in plan.trials):
        if record is not None and not (record.path / tensorboard.FOLDER).is_dir():
            lines = [*record.train, *record.test]
            tensorboard.EventFile(record.path, record.info["started"], lines).close()


def _drop_checkpoints(tuned: Sequence[Tuned]) -> None:
    """Free the disk of models that nobody asks for; a trial without them begins anew if it is extended.

    Renamed first, so that a kill in between leaves all or nothing; clients' rows go after the checkpoints
    that need them.
    """
    for part in tuned:
        for candidate in part.candidates:
            if candidate is part.best:
                continue
            for t in candidate.trials:
                for name in ("checkpoints", "clients"):
                    aside = t.path / f".{name}.dropped"
                    try:
                        shutil.rmtree(aside, ignore_errors=True)
                        os.rename(t.path / name, aside)
                    except FileNotFoundError:
                        continue
                    except OSError:
                        break
                    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _claimed(out: Path, task: str) -> Iterator[None]:
    """`out` for this sweep alone; nothing is written into a directory of something else."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; choose another --out")
    _refuse_foreign(out, task)
    lock = lock_directory(out, "sweep")
    try:
        yield
    finally:
        os.close(lock)


def _refuse_foreign(out: Path, task: str) -> None:
    if not out.is_dir():
        return
    file = out / SWEEP
    if not file.is_file():
        others = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if others:
            raise UserError(
                f"{out} is not empty and not a sweep (it has {others[0]!r}); choose another --out"
            )
        return
    try:
        there = json.loads(file.read_bytes())["task"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} is damaged ({error}); remove it to go on, or choose another --out"
        ) from error
    if there != task:
        raise UserError(f"{out} holds a sweep of {there}, not of {task}; choose another --out")


def _write_plan(asked: Asked, plans: Sequence[Plan], out: Path) -> None:
    """What was asked for, so that a directory explains itself while it is running."""
    plan = asked._asdict() | {
        "grid": {p.algorithm: p.grid for p in plans},
        "rounds": {p.algorithm: p.rounds for p in plans},
        "trials": {
            p.algorithm: {f"trials/{t.path.name}": describe(t.point) for t in p.trials} for p in plans
        },
        "budget": asked.trials,
    }
    write_atomically(out / SWEEP, json.dumps(plan, indent=2, default=str) + "\n")
