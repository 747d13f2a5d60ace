"""The sweep: plan the trials of a request, run the search, write the results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedopt.algorithms import AlgorithmChoice, algorithm_name
from fedopt.documents import seal
from fedopt.engine.executors import AUTO, ExecutorOptions
from fedopt.engine.initial_model import initial_model
from fedopt.errors import RunDirectoryError
from fedopt.files import locked_directory, write_atomically
from fedopt.reports.progress import ProgressBar
from fedopt.reports.summary import TRAIN_LOSS
from fedopt.runs import fingerprint as fingerprints
from fedopt.runs import tensorboard
from fedopt.runs.directory import remove_checkpoints, remove_temporary_files
from fedopt.runs.discover import SWEEP
from fedopt.runs.loggers import check_loggers
from fedopt.runs.prepare import with_chosen_executor
from fedopt.tasks import find_task
from fedopt.tuning.backends import check_trial_executor, open_backend
from fedopt.tuning.grid import Grid, Point, describe_point, grid_points
from fedopt.tuning.progress import SweepProgress
from fedopt.tuning.request import SweepRequest, default_directory, grid_notes, read_grids
from fedopt.tuning.result_files import write_results
from fedopt.tuning.results import AlgorithmResult, SweepResult, read_results
from fedopt.tuning.runner import BatchRunner
from fedopt.tuning.scores import score
from fedopt.tuning.searches import Search, grid_search, halving_search, plan_evaluated_rungs, run_searches
from fedopt.tuning.stacks import STACKING
from fedopt.tuning.trials import Trial, make_trial, read_trial


class AlgorithmPlan(NamedTuple):
    """The grid of one algorithm and the trials of each point, one per seed."""

    algorithm: str  # its name
    grid: Grid
    points: list[list[Trial]]

    @property
    def rounds(self) -> int:
        """The rounds of a complete trial."""
        return self.points[0][0].config.rounds

    @property
    def trials(self) -> list[Trial]:
        return [trial for seeds in self.points for trial in seeds]

    def below(self, out: Path) -> AlgorithmPlan:
        """Return the plan of a sweep in `out`."""
        points = [[trial._replace(path=out / trial.path) for trial in seeds] for seeds in self.points]
        return self._replace(points=points)


def sweep(
    request: SweepRequest, executor: ExecutorOptions, out: Path | None, quiet: bool = False
) -> SweepResult:
    """Tune each algorithm of a request. Trials that are finished in `out` are not run again.

    Errors in the request are reported before anything is written. `quiet` shows no progress.
    """
    check_trial_executor(executor)
    check_loggers(request.log)
    if request.tensorboard:
        tensorboard.require()
    grids = read_grids(request)
    request, executor, choice = _with_chosen_executor(request, executor, list(grids.values()))
    plans = [
        _plan(request, algorithm, grid)
        for algorithm, grid in zip(request.algorithms, grids.values(), strict=True)
    ]
    if out is None:
        own = fingerprints.name_digest([plan.trials[0].request.prepare() for plan in plans])
        out = default_directory(request, grids, own)
    plans = [plan.below(out) for plan in plans]
    _check_own_parts(plans)
    for plan in plans:
        _check_recorded_trials(plan, request.select)
    searches = [_make_search(request, plan) for plan in plans]
    if request.data_name != "synthetic":  # open the data, to report errors early
        plans[0].trials[0].request.prepare().problem.federation()
    notes = [*grid_notes(request, grids), *choice]
    with locked_directory(out, "sweep", SWEEP, {"task": request.task_name}):
        remove_temporary_files(out)
        _write_plan(request, plans, out)
        rounds = sum(trial.config.rounds for plan in plans for trial in plan.trials)
        with ProgressBar(f"sweep {request.task_name}", total=rounds, quiet=quiet) as bar:
            progress = SweepProgress(bar, sum(len(plan.trials) for plan in plans))
            for note in notes:
                progress.log(note)
            with open_backend(request, executor, progress) as backend:
                run_searches(searches, BatchRunner(backend, request.select, progress).run)
        if request.tensorboard:
            _write_missing_events(plans)
        algorithms = [read_results(request, p.algorithm, p.grid, p.points, p.rounds) for p in plans]
        result = SweepResult(request, algorithms, out, notes)
        write_results(result)
        if request.keep == "best":
            _remove_other_checkpoints(algorithms)
    return result


def _with_chosen_executor(
    request: SweepRequest, executor: ExecutorOptions, grids: Sequence[Grid]
) -> tuple[SweepRequest, ExecutorOptions, list[str]]:
    """Replace the executor "auto" by the one that suits the first trial of each algorithm.

    The list contains a line with the choice and its reason; it is empty if the request names its executor.
    """
    if executor.name != AUTO:
        return request, executor, []
    trials = [
        _plan(request, algorithm, grid).trials[0]
        for algorithm, grid in zip(request.algorithms, grids, strict=True)
    ]
    requests = [replace(trial.request, executor=executor) for trial in trials]
    chosen, message = with_chosen_executor(requests)
    name = chosen[0].executor.name
    is_stacking = name in STACKING
    return (
        request._replace(executor=name if is_stacking else None),
        replace(executor, name=name if is_stacking else None),
        [message],
    )


def _plan(request: SweepRequest, algorithm: AlgorithmChoice, grid: Grid) -> AlgorithmPlan:
    """Plan the trials of an algorithm. Their directories are relative to that of the sweep."""
    settings = dict(request.settings)
    if find_task(request.task).full_test_at_end and request.data_name != "synthetic":
        # Selection does not use the full test set, whose evaluation takes longer than many trials.
        settings.setdefault("eval.final", "sample")

    def make(point: Point, seed: int) -> Trial:
        seeded = {**settings, "seed": seed}
        return make_trial(
            Path("trials"),
            request.task,
            algorithm,
            point,
            seeded,
            request.data,
            request.tensorboard,
            request.log,
            request.executor,
        )

    points = [[make(point, seed) for seed in request.seeds] for point in grid_points(grid)]
    return AlgorithmPlan(algorithm_name(algorithm), grid, points)


def _check_own_parts(plans: Sequence[AlgorithmPlan]) -> None:
    """Refuse trials of another user-defined model, task or algorithm with the same name."""
    tasks: dict[int, fingerprints.Fingerprint] = {}  # by seed
    for trial in [trial for plan in plans for trial in plan.trials]:
        record = read_trial(trial)
        if record is None or not record.info.get("fingerprint"):
            continue
        config, problem, _, initial = trial.request.prepare()
        if config.seed not in tasks:
            parts = (config, problem, initial or initial_model(problem), problem.federation())
            tasks[config.seed] = fingerprints.make_fingerprint(*parts, is_new=False)
        current = tasks[config.seed] | fingerprints.own_algorithm_fingerprint(config, problem)
        fingerprints.check_fingerprint(trial.path, record.info["fingerprint"], current)


def _check_recorded_trials(plan: AlgorithmPlan, select: str) -> None:
    """Refuse damaged trials, and longer trials that were not evaluated after the requested rounds."""
    for trial in plan.trials:
        record = read_trial(trial)
        if record is None or select == TRAIN_LOSS or record.rounds <= plan.rounds:
            continue
        if score(record, select, plan.rounds) is None:
            raise RunDirectoryError(
                f"{trial.path} was run for {record.rounds} rounds and not evaluated after {plan.rounds}, so "
                f"its {select} there is unknown; use rounds={record.rounds}, select={TRAIN_LOSS} or "
                "another directory",
                path=trial.path,
            )


def _make_search(request: SweepRequest, plan: AlgorithmPlan) -> Search:
    trials = plan.trials
    if request.search == "grid":
        return grid_search(trials)
    rungs = plan_evaluated_rungs(len(trials), trials[0].config, request.select)
    if request.search == "halving":
        return halving_search(trials, rungs)
    from fedopt.tuning.optuna_search import default_budget, optuna_search

    return optuna_search(plan.grid, trials, rungs, request.trials or default_budget(len(trials)))


def _write_missing_events(plans: Sequence[AlgorithmPlan]) -> None:
    """Write TensorBoard event files for trials that were finished without them."""
    for record in (read_trial(trial) for plan in plans for trial in plan.trials):
        if record is not None and not (record.path / tensorboard.FOLDER).is_dir():
            lines = [*record.train, *record.test]
            tensorboard.EventFile(record.path, record.info["started"], lines).close()


def _remove_other_checkpoints(algorithms: Sequence[AlgorithmResult]) -> None:
    """Remove the checkpoints of all trials but the best of each algorithm."""
    for result in algorithms:
        for point in result.points:
            if point is not result.best:
                for trial in point.trials:
                    remove_checkpoints(trial.path)


def _write_plan(request: SweepRequest, plans: Sequence[AlgorithmPlan], out: Path) -> None:
    """Write the request and the point of each trial to sweep.json."""
    document = request._asdict() | {
        "task": request.task_name,
        "algorithms": request.algorithm_names,
        "data": request.data_name,
        "grid": {plan.algorithm: plan.grid for plan in plans},
        "rounds": {plan.algorithm: plan.rounds for plan in plans},
        "trials": {
            plan.algorithm: {f"trials/{t.path.name}": describe_point(t.point) for t in plan.trials}
            for plan in plans
        },
        "budget": request.trials,
        "given_grid": request.grid,
    }
    plain = json.loads(json.dumps(document, default=str))
    write_atomically(out / SWEEP, json.dumps(seal(plain), indent=2) + "\n")
