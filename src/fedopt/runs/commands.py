"""What the commands of the command line do, as functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.api import fresh_model
from fedopt.data.store.locations import data_source
from fedopt.display.progress import ProgressBar, RunProgress
from fedopt.display.table import comparison_table, explanation, wide_console
from fedopt.engine.executors import open_executor
from fedopt.engine.executors.base import Executor
from fedopt.errors import FedoptError, RunError, UserError, unknown
from fedopt.formatting import metric_unit
from fedopt.report import write_report
from fedopt.runs import tensorboard
from fedopt.runs.build_problem import problem_of
from fedopt.runs.config import Config, parse_settings, resolve
from fedopt.runs.discover import find_runs
from fedopt.runs.execute import RunResult, execute
from fedopt.runs.records import LAST_ROUNDS, RunRecord, read_run
from fedopt.runs.rerun_command import run_command
from fedopt.runs.weights import read_weights
from fedopt.tasks import find_task


class Request(NamedTuple):
    """What a user asked for, before the algorithm."""

    task: str
    settings: Mapping[str, Any]
    data: str = "synthetic"
    init: Path | None = None
    tensorboard: bool = False
    vectorised: str | None = None  # the device on which clients train many at a time

    def config(self, algorithm: str) -> Config:
        config = resolve(find_task(self.task), algorithm, self.settings, data_source(self.data))
        return config.model_copy(update={"vectorised": self.vectorised})

    @property
    def options(self) -> list[str]:
        """What was asked for beside settings and data, as it is typed."""
        start = [] if self.init is None else ["--init", str(self.init)]
        place = ["--executor", "vectorised"] if self.vectorised == "cpu" else []
        place += ["--device", self.vectorised] if self.vectorised not in (None, "cpu") else []
        return [*start, *(["--tensorboard"] if self.tensorboard else []), *place]

    def with_seed(self, seed: int) -> Request:
        return self._replace(settings={**self.settings, "seed": seed})


class Several(NamedTuple):
    """Runs that were made together."""

    out: Path
    results: list[RunResult]
    failed: list[str]  # a line for each run that has no result
    paths: list[Path]  # of all of them


def show_config(request: Request, algorithm: str) -> str:
    return request.config(algorithm).toml()


def run(
    request: Request,
    algorithm: str,
    executor: str,
    workers: int | None,
    out: Path | None,
    command: str,
) -> RunResult:
    """`fedopt run`."""
    with open_executor(executor, workers, request.vectorised) as place:
        return _run(request, algorithm, place, out, command)


def _run(
    request: Request, algorithm: str, place: Executor, out: Path | None, command: str, heading: str = ""
) -> RunResult:
    if request.tensorboard:
        tensorboard.require()
    task, config = find_task(request.task), request.config(algorithm)
    initial = None
    if request.init is not None:
        initial, checksum = read_weights(request.init, fresh_model(task, config), config.buffers)
        config = config.model_copy(update={"init": checksum})
    with ProgressBar(config.algorithm, config.rounds) as progress:
        if heading:
            progress.log(heading)
        return execute(
            config,
            problem_of(task, config),
            place,
            out=out or _default_directory(config, config.short_hash()),
            command=command,
            better=task.better,
            initial=initial,
            on_step=RunProgress(progress, config).on_step,
            say=progress.log,
            tensorboard=request.tensorboard,
        )


def run_seeds(
    request: Request,
    algorithm: str,
    seeds: Sequence[int],
    executor: str,
    workers: int | None,
    out: Path | None,
) -> Several:
    """`fedopt run --seeds`: OUT/seed-0, OUT/seed-1, ...; more seeds later join those that are there."""
    config = request.config(algorithm)
    if out is None:
        out = _default_directory(config, _hash_without_seed(config))
    jobs = [(algorithm, request.with_seed(seed), out / f"seed-{seed}") for seed in seeds]
    _refuse_runs([out])
    return _run_all(jobs, executor, workers, out)


def compare(
    request: Request,
    algorithms: Sequence[str],
    settings: Sequence[str],
    seeds: Sequence[int] | None,
    executor: str,
    workers: int | None,
    out: Path | None,
) -> tuple[Several, Path]:
    """`fedopt compare`: the runs and the report.

    `settings` are for all algorithms or for one that they name; those of `request` come on top of them.
    Every configuration is checked before the first round is run.
    """
    if not algorithms:
        raise UserError("--algorithms names none; for example --algorithms fedavg,fedyogi")
    repeated = [name for name in algorithms if list(algorithms).count(name) > 1]
    if repeated:
        raise UserError(f"--algorithms names {repeated[0]!r} twice; a comparison has one run of each")
    requests = {
        name: request._replace(settings=_settings_for(name, settings, algorithms) | dict(request.settings))
        for name in algorithms
    }
    configs = [asked.config(name) for name, asked in requests.items()]
    if out is None:  # the same comparison finds its runs again
        hashes = [_hash_without_seed(c) if seeds is not None else c.short_hash() for c in configs]
        digest = hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:6]
        out = Path("runs") / request.task / f"compare-{digest}"
    if seeds is None:
        jobs = [(name, asked, out / name) for name, asked in requests.items()]
    else:
        _refuse_runs([out, *(out / name for name in requests)])
        jobs = [
            (name, asked.with_seed(seed), out / name / f"seed-{seed}")
            for name, asked in requests.items()
            for seed in seeds
        ]
    several = _run_all(jobs, executor, workers, out)
    report = out / "report.html"
    write_report(_records(several), report, f"{len(requests)} federated optimizers on {request.task}")
    return several, report


def _run_all(
    jobs: Sequence[tuple[str, Request, Path]], executor: str, workers: int | None, out: Path
) -> Several:
    """One run after the other; one that diverges does not end the others."""
    several = Several(out, [], [], [path for _, _, path in jobs])
    with open_executor(executor, workers, jobs[0][1].vectorised) as place:
        for at, (algorithm, request, path) in enumerate(jobs, start=1):
            seeded = path.name.startswith("seed-")
            name = f"{algorithm}, seed {request.settings['seed']}" if seeded else algorithm
            heading = f"{name} ({at} of {len(jobs)})" if seeded else ""
            again = run_command(
                request.task, algorithm, request.settings, request.data, path, request.options
            )
            try:
                several.results.append(_run(request, algorithm, place, path, again, heading))
            except UserError:
                raise
            except FedoptError as error:
                several.failed.append(f"{name}: {error}")
    return several


def _records(several: Several) -> list[RunRecord]:
    """What is on disk of the runs; of one that failed before it began there is nothing."""
    begun = [path for path in several.paths if (path / "config.toml").is_file()]
    if not begun:
        raise RunError("; ".join(several.failed))
    return [read_run(path) for path in begun]


def _default_directory(config: Config, digest: str) -> Path:
    """runs/TASK/ALGORITHM-HASH: the same configuration finds its run again."""
    return Path("runs") / config.task / f"{config.algorithm}-{digest}"


def _hash_without_seed(config: Config) -> str:
    identity = {key: value for key, value in config.identity().items() if key != "seed"}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:6]


def _refuse_runs(paths: Iterable[Path]) -> None:
    """Several seeds lie in directories of their own, never inside a run."""
    for path in paths:
        if (path / "config.toml").exists():
            raise UserError(f"{path} is a run with one seed, and --seeds makes several; choose another --out")


def _settings_for(algorithm: str, settings: Sequence[str], all_names: Sequence[str]) -> dict[str, Any]:
    """The settings of one algorithm: those for all, then those that name it."""
    common, own = [], []
    for setting in settings:
        name, colon, rest = setting.partition(":")
        if colon and "=" not in name:
            if name not in all_names:
                raise unknown("algorithm in --set", name, all_names)
            if name == algorithm:
                own.append(rest)
        else:
            common.append(setting)
    return parse_settings([*common, *own])


def report(paths: Sequence[Path], output: Path | None, title: str | None) -> tuple[Path, list[str]]:
    """`fedopt report`: where the page is, and a line for each run that was left out as damaged."""
    found = find_runs(paths)
    if not found.records:
        raise UserError(f"no run can be read: {'; '.join(found.damaged)}")
    if output is None:
        output = (paths[0] if len(paths) == 1 else Path()) / "report.html"
    if output.is_dir():
        raise UserError(f"{output} is a directory; name a file, such as -o {output / 'report.html'}")
    names = dict.fromkeys(record.label for record in found.records)
    if title is None:
        methods = ", ".join(names) if len(names) <= 3 else f"{len(names)} federated optimizers"
        title = f"{methods} on {found.records[0].info['task']}"
    write_report(found.records, output, title)
    return output, found.damaged


# -- what they print


def describe(result: RunResult) -> str:
    """A run's result in a few lines."""
    unit = metric_unit(result.metric)
    value = "none" if result.value is None else unit.format(result.value)
    loss = "none" if result.train_loss is None else f"{result.train_loss:.4f}"
    last = f"the last {min(LAST_ROUNDS, result.rounds)} rounds"
    return "\n".join(
        [
            f"{result.task} {result.algorithm}, {result.rounds} rounds, seed {result.seed}, "
            f"{result.data} data",
            f"  {unit.name}  {value}   (mean over the evaluations of {last})",
            f"  train loss  {loss}   (mean over {last})",
            *_full_test(result),
            f"  parameters  {result.params:,}   x sha256 {result.x_sha256[:16]}",
            f"  run         {result.path}",
        ]
    )


def _full_test(result: RunResult) -> list[str]:
    if result.full_test is None:
        return []
    values = ", ".join(f"{name} {value:.4f}" for name, value in result.full_test.items() if value is not None)
    return [f"  full test set  {values}"]


def spread(results: Sequence[RunResult]) -> Interval | None:
    """The mean of the runs' values with its interval; None where no run has a value."""
    values = [result.value for result in results if result.value is not None]
    return confidence_interval(values) if values else None


def _spread_json(results: Sequence[RunResult]) -> dict[str, Any]:
    mean, half_width, n = spread(results) or (None, None, 0)
    return {"mean": mean, "half": half_width, "n": n}


def seeds_json(task: str, algorithm: str, several: Several) -> dict[str, Any]:
    """The JSON object of `fedopt run --seeds`."""
    return {
        "task": task,
        "algorithm": algorithm,
        "metric": find_task(task).metric,
        "runs": [result.summary() for result in several.results],
        **_spread_json(several.results),
    }


def comparison_json(several: Several, report: Path, seeds: bool) -> dict[str, Any]:
    """The JSON object of `fedopt compare`; with several seeds, the mean of each algorithm too."""
    printed: dict[str, Any] = {
        "runs": [result.summary() for result in several.results],
        "report": str(report),
    }
    if seeds:
        names = dict.fromkeys(result.algorithm for result in several.results)
        printed["groups"] = [
            {"algorithm": name} | _spread_json([r for r in several.results if r.algorithm == name])
            for name in names
        ]
    return printed


def print_seeds(several: Several) -> None:
    """The mean over the seeds, then the table."""
    records = _records(several)
    found = spread(several.results)
    if found:
        unit = metric_unit(several.results[0].metric)
        margin = "" if found.half_width is None else f" ± {unit.format(found.half_width)}"
        seeds = f"{found.n} seed{'s' if found.n > 1 else ''}"
        note = f"mean over {seeds}" + (", 95 % interval" if found.half_width is not None else "")
        print(f"{unit.name}  {unit.format(found.mean)}{margin}   ({note})")
    _print_table(records)
    print(f"runs: {several.out}")


def print_comparison(several: Several, report: Path) -> None:
    _print_table(_records(several))
    print(f"report: {report}")


def _print_table(records: Sequence[RunRecord]) -> None:
    console = wide_console()
    console.print(comparison_table(records))
    console.print(explanation(records), highlight=False, style="dim")
