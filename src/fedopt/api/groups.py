"""Several runs: comparisons of algorithms and repetitions with several seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.algorithms import AlgorithmChoice
from fedopt.api.training import check_seeds, default_directory, execute_run, merge_settings, shows_progress
from fedopt.documents import is_intact, parse_json, seal
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.errors import ConfigError, FedoptError, RunDirectoryError, RunError, UserError
from fedopt.files import write_atomically
from fedopt.formatting import NotebookDisplay, TextTable
from fedopt.references import file_name
from fedopt.remote.location import local_path
from fedopt.reports.progress import ProgressBar, RunProgress
from fedopt.reports.sentences import headline
from fedopt.reports.summary import Comparison, Rule, compare_runs, parse_rule
from fedopt.reports.tables import comparison_table
from fedopt.runs import tensorboard as event_files
from fedopt.runs.config import short_digest
from fedopt.runs.fingerprint import name_digest
from fedopt.runs.loggers import check_loggers, create_loggers, other_loggers
from fedopt.runs.prepare import PreparedRun, RunRequest, with_chosen_executor
from fedopt.runs.records import RunRecord, read_run
from fedopt.runs.result import RunResult
from fedopt.tasks import Task

GROUP = "group.json"  # the requests of several runs, in their directory


@dataclass(frozen=True)
class RunGroup(NotebookDisplay):
    """Several runs that were executed together, for example a comparison of algorithms.

    `print(group)` and notebooks show the comparison as a table.

    Attributes:
        out: the directory of the runs.
        results: the result of each run that has one.
        failures: one message for each run without a result.
        paths: the directory of each run.
        report: the HTML page, if one was written.
        rule: the ranking of the runs: "last" or "paper".
    """

    out: Path
    results: list[RunResult]
    failures: list[str]
    paths: list[Path]
    report: Path | None = None
    rule: Rule = "last"

    def table(self) -> TextTable:
        """The comparison of the runs: metric, training loss, rounds to a target, traffic and time."""
        comparison = self.comparison()
        return comparison_table(comparison).text(headline(comparison))

    def comparison(self) -> Comparison:
        """Read the runs and rank them."""
        return compare_runs(self.records(), self.rule)

    def records(self) -> list[RunRecord]:
        """Read the run directories. Runs that failed before they began have none."""
        started = [path for path in self.paths if (path / "config.toml").is_file()]
        if not started:
            raise RunError("; ".join(self.failures))
        return [read_run(path) for path in started]


class _Job(NamedTuple):
    name: str
    request: RunRequest
    prepared: PreparedRun
    folder: Path  # below the directory of the group


def run_seeds(
    request: RunRequest,
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    progress: bool = False,
) -> RunGroup:
    """Execute a run with several seeds, in OUT/seed-0, OUT/seed-1, ... Existing runs are resumed.

    Args:
        request: the task, the algorithm and the settings of the run.
        seeds: the seeds.
        out: directory of the runs; by default runs/TASK/ALGORITHM-HASH.
        progress: whether to show progress on stderr.

    Returns:
        The runs. Their table shows means with confidence intervals.

    Examples:
        >>> request = fedopt.RunRequest("synthetic_lr", "fedavg", {"rounds": 1, "client.steps": 1})
        >>> group = fedopt.run_seeds(request, seeds=[0, 1], out=Path("runs/seeds"))
        >>> [result.seed for result in group.results]
        [0, 1]
    """
    check_seeds(seeds)
    (request,), message = with_chosen_executor([request])
    jobs = _seed_jobs(request, seeds, Path())
    out = out or default_directory(jobs[0].prepared.config, several_seeds=True)
    _refuse_runs([out])
    _check_packages([request])
    _write_group(out, "seeds", [request], list(seeds))
    return _run_all(jobs, out, progress, message)


def compare(
    task: str | Task,
    algorithms: Sequence[AlgorithmChoice] | Mapping[AlgorithmChoice, Mapping[str, Any]],
    *,
    rounds: int | None = None,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    executor: str | None = None,
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    tensorboard: bool = False,
    log: Sequence[str] = (),
    device: str = "cpu",
    ray_address: str | None = None,
    ray_gpus: float | None = None,
    rule: str = "last",
    progress: bool | None = None,
) -> RunGroup:
    """Train a task with several algorithms and write `OUT/report.html`. The same call resumes it.

    A run that diverges does not stop the others; `failures` names it. `print(result)` and notebooks show the
    comparison.

    Args:
        task: the task, as in `fedopt.run`.
        algorithms: names, references such as "my_project.algorithms:feddyn", `Algorithm` objects, or
            functions that build one; or a mapping from these to the configuration of each.
        rounds: number of rounds; the task's own number by default.
        seed: the seed of all runs.
        seeds: several seeds; each algorithm runs once with each, and the table shows means with intervals.
        config: configuration of all runs, with dotted keys.
        data: "synthetic", an imported dataset or its directory; for named tasks only.
        executor: where clients train, as in `fedopt.run`.
        workers: number of worker processes.
        out: directory of the runs; by default runs/TASK/compare-HASH.
        tensorboard: the same as log=["tensorboard"].
        log: names of loggers: "tensorboard", "wandb", "mlflow".
        device: "cpu", "cuda", "mps" or "auto", as in `fedopt.run`.
        ray_address: "auto" or HOST:PORT of a Ray cluster.
        ray_gpus: number of GPUs that a Ray worker reserves.
        rule: ranking of the runs: "last", by the last evaluation, or "paper", by the mean of the last 100
            rounds.
        progress: whether to show progress; by default in a terminal and in a notebook.

    Returns:
        The runs, their table and the path of the report.

    Examples:
        >>> comparison = fedopt.compare(
        ...     "synthetic_lr",
        ...     {"fedavg": {}, "fedyogi": {"server.tau": 0.01}},
        ...     rounds=1,
        ...     config={"client.steps": 1},
        ...     out="runs/comparison",
        ... )
        >>> [result.algorithm for result in comparison.results]
        ['fedavg', 'fedyogi']
        >>> comparison.report.name
        'report.html'
    """
    check_seeds(seeds)
    settings = merge_settings(config, rounds=rounds, seed=seed)
    if seeds is not None and "seed" in settings:
        raise ConfigError("seed and seeds exclude each other; give one", keys=("seed",))
    if isinstance(algorithms, str):
        raise ConfigError(
            f'algorithms is a string; pass a list, such as ["{algorithms}"]', keys=("algorithms",)
        )
    check_loggers(log)
    own = algorithms if isinstance(algorithms, Mapping) else dict.fromkeys(algorithms, {})
    if not isinstance(algorithms, Mapping) and len(own) < len(algorithms):
        raise ConfigError("an algorithm is listed twice; use each once", keys=("algorithms",))
    options = ExecutorOptions(executor, workers, device, ray_address, ray_gpus)
    requests = [
        RunRequest(
            task,
            algorithm,
            settings | dict(changes),
            data,
            executor=options,
            tensorboard=tensorboard or "tensorboard" in log,
            log=other_loggers(log),
        )
        for algorithm, changes in own.items()
    ]
    return compare_requests(
        requests,
        seeds=None if seeds is None else list(seeds),
        out=None if out is None else local_path(out, "out"),
        rule=rule,
        progress=shows_progress(progress),
    )


def compare_requests(
    requests: Sequence[RunRequest],
    *,
    seeds: Sequence[int] | None = None,
    out: Path | None = None,
    rule: str = "last",
    progress: bool = False,
) -> RunGroup:
    """Execute one run per request, or one per request and seed, and write OUT/report.html.

    The requests have the same task and executor, and different algorithms. All configurations are checked
    before the first round.
    """
    if not requests:
        raise ConfigError("algorithms is empty; name some, such as fedavg and fedyogi", keys=("algorithms",))
    ranking = parse_rule(rule)
    task, names = requests[0].task_name, [request.algorithm_name for request in requests]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise ConfigError(f"algorithms has {repeated!r} twice; use each name once", keys=("algorithms",))
    requests, message = with_chosen_executor(requests)
    jobs: list[_Job] = []
    for name, request in zip(names, requests, strict=True):
        if seeds is None:
            jobs.append(_Job(name, request, request.prepare(), Path(file_name(name))))
        else:
            jobs += _seed_jobs(request, seeds, Path(file_name(name)))
    if out is None:
        ignore = () if seeds is None else ("seed",)
        hashes = {job.prepared.config.short_hash(ignore=ignore) for job in jobs}
        own = name_digest([request.prepare() for request in requests])
        digest = short_digest(" ".join([*sorted(hashes), *filter(None, [own])]))
        out = Path("runs") / file_name(task) / f"compare-{digest}"
    if seeds is not None:
        _refuse_runs([out, *(out / file_name(name) for name in names)])
    _check_packages(requests)
    _write_group(out, "comparison", requests, None if seeds is None else list(seeds))
    group = _run_all(jobs, out, progress, message)
    page = out / "report.html"
    from fedopt.reports.page import write_report  # imports Jinja2

    write_report(group.records(), page, f"{len(requests)} federated optimizers on {task}", ranking)
    return replace(group, report=page, rule=ranking)


def _check_packages(requests: Sequence[RunRequest]) -> None:
    """Check that the packages of all loggers are installed, before anything is written."""
    check_loggers(requests[0].log)
    if any(request.tensorboard for request in requests):
        event_files.require()


def _write_group(out: Path, kind: str, requests: Sequence[RunRequest], seeds: list[int] | None) -> None:
    """Record the requests, so that `fedopt resume` can start the runs that are missing.

    Seeds that an earlier call has recorded stay.
    """
    document = {"kind": kind, "requests": [request.document() for request in requests], "seeds": seeds}
    document = json.loads(json.dumps(document, default=str))
    file = out / GROUP
    try:
        out.mkdir(parents=True, exist_ok=True)
        earlier = parse_json(file.read_bytes()) if file.is_file() else {}
    except ValueError:
        earlier = {}  # a damaged file is replaced
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to {out}: {error.strerror}; choose another directory", path=out
        ) from error
    if seeds and isinstance(earlier, dict) and earlier.get("seeds"):
        if is_intact(earlier) and seal({**earlier, "seeds": seeds}) == seal(document):
            document["seeds"] = sorted({*earlier["seeds"], *seeds})
    write_atomically(file, json.dumps(seal(document), indent=2) + "\n")


def _seed_jobs(request: RunRequest, seeds: Sequence[int], folder: Path) -> list[_Job]:
    seeded = [request.with_settings(seed=seed) for seed in seeds]
    return [
        _Job(f"{request.algorithm_name}, seed {seed}", one, one.prepare(), folder / f"seed-{seed}")
        for seed, one in zip(seeds, seeded, strict=True)
    ]


def _run_all(jobs: Sequence[_Job], out: Path, progress: bool, message: str = "") -> RunGroup:
    """Execute one run after the other. A run that diverges does not stop the others.

    `message` is shown with the progress.
    """
    group = RunGroup(out, [], [], [out / job.folder for job in jobs])
    rounds = [job.prepared.config.rounds for job in jobs]
    with (
        open_executor(jobs[0].request.executor, jobs[0].prepared.config.vectorised) as opened,
        ProgressBar("", sum(rounds), quiet=not progress) as bar,
    ):
        if progress and message:
            bar.log(message)
        for number, (name, request, prepared, folder) in enumerate(jobs):
            title, before = f"{name} ({number + 1} of {len(jobs)})", sum(rounds[:number])
            shown = RunProgress(bar, prepared.config, prepared.problem.metric, title, before)
            path, command = out / folder, request.command(out / folder)
            try:
                result = execute_run(
                    prepared,
                    opened,
                    path,
                    command,
                    request.tensorboard,
                    shown if progress else None,
                    loggers=create_loggers(request.log),
                )
                group.results.append(result)
                if progress:
                    bar.update(before + prepared.config.rounds, "")
                    bar.log(f"{name}: {result.describe()}")
            except UserError:
                raise
            except FedoptError as error:
                group.failures.append(f"{name}: {error}")
    return group


def _refuse_runs(paths: Sequence[Path]) -> None:
    """Refuse to put the runs of several seeds into the directory of one run."""
    for path in paths:
        if (path / "config.toml").exists():
            raise RunDirectoryError(
                f"{path} is a run with one seed, and seeds makes several; choose another directory", path=path
            )
