"""What the commands of the command line do, as functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from fedopt.algorithms import build
from fedopt.engine.evaluate import means, measure_clients
from fedopt.engine.executors import Executor
from fedopt.engine.runner import single_thread
from fedopt.errors import FedoptError, UserError, unknown
from fedopt.experiments.api import find_task, fresh_model, load, open_executor
from fedopt.experiments.config import Config, parse_settings, resolve
from fedopt.experiments.problems import problem_of
from fedopt.experiments.progress import Progress
from fedopt.experiments.records import LAST_ROUNDS, read_run
from fedopt.experiments.report import write_report
from fedopt.experiments.run import RunResult, execute, finite
from fedopt.experiments.table import comparison_table, explanation, unit_of
from fedopt.experiments.weights import read_weights

PERCENTILES = (5, 25, 50, 75, 95)
SPLITS = ("test", "train")


class Request(NamedTuple):
    """What a user asked for, before the algorithm."""

    task: str
    settings: Mapping[str, Any]
    data: str = "synthetic"
    init: Path | None = None


def show_config(request: Request, algorithm: str) -> str:
    return resolve(find_task(request.task), algorithm, request.settings, request.data).toml()


def run(
    request: Request,
    algorithm: str,
    executor: str,
    workers: int | None,
    out: Path | None,
    command: str,
) -> RunResult:
    """`fedopt run`."""
    with open_executor(executor, workers) as place:
        return _run(request, algorithm, place, out, command)


def _run(request: Request, algorithm: str, place: Executor, out: Path | None, command: str) -> RunResult:
    task = find_task(request.task)
    config = resolve(task, algorithm, request.settings, request.data)
    initial = None
    if request.init is not None:
        initial, checksum = read_weights(request.init, fresh_model(task, config), config.buffers)
        config = config.model_copy(update={"init": checksum})
    with Progress(config) as progress:
        return execute(
            config,
            problem_of(task, config),
            place,
            out=out or default_directory(config),
            command=command,
            better=task.better,
            initial=initial,
            on_step=progress.step,
            say=progress.say,
        )


def default_directory(config: Config) -> Path:
    """runs/TASK/ALGORITHM-HASH: the same configuration finds its run again."""
    return Path("runs") / config.task / f"{config.algorithm}-{config.short_hash()}"


def describe(result: RunResult) -> str:
    """A run's result in a few lines."""
    unit = unit_of(result.metric)
    value = "none" if result.value is None else unit.text(result.value)
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


def compare(
    task: str,
    algorithms: Sequence[str],
    settings: Sequence[str],
    rounds: int | None,
    seed: int | None,
    data: str,
    executor: str,
    workers: int | None,
    out: Path | None,
) -> tuple[list[RunResult], list[str], Path]:
    """`fedopt compare`: results, what failed, and the report.

    Every configuration is checked before the first round is run.
    """
    if not algorithms:
        raise UserError("--algorithms names none; for example --algorithms fedavg,fedyogi")
    repeated = [name for name in algorithms if list(algorithms).count(name) > 1]
    if repeated:
        raise UserError(f"--algorithms names {repeated[0]!r} twice; a comparison has one run of each")
    fixed = {k: v for k, v in (("rounds", rounds), ("seed", seed)) if v is not None}
    requests, hashes = {}, []
    for algorithm in algorithms:
        request = Request(task, _settings_for(algorithm, settings, algorithms) | fixed, data)
        hashes.append(resolve(find_task(task), algorithm, request.settings, data).short_hash())
        requests[algorithm] = request
    if out is None:  # the same comparison finds its runs again
        digest = hashlib.sha256(" ".join(sorted(hashes)).encode()).hexdigest()[:6]
        out = Path("runs") / task / f"compare-{digest}"
    results: list[RunResult] = []
    failed: list[str] = []
    with open_executor(executor, workers) as place:
        for algorithm, request in requests.items():
            again = _single_command(task, algorithm, request, out / algorithm)
            try:
                results.append(_run(request, algorithm, place, out / algorithm, again))
            except UserError:
                raise
            except FedoptError as error:  # one that diverges does not end the others
                failed.append(f"{algorithm}: {error}")
    report = out / "report.html"
    records = [read_run(out / algorithm) for algorithm in requests]
    write_report(records, report, f"{len(requests)} federated optimizers on {task}")
    return results, failed, report


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


def _single_command(task: str, algorithm: str, request: Request, out: Path) -> str:
    """The `fedopt run` that makes one run of a comparison again."""
    words = ["fedopt", "run", task, "--algorithm", algorithm]
    for key, value in request.settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += [f"--{key}", text] if key in ("rounds", "seed") else ["--set", f"{key}={text}"]
    words += [] if request.data == "synthetic" else ["--data", request.data]
    return " ".join([*words, "--out", str(out)])


def print_comparison(paths: Sequence[Path], report: Path) -> None:
    records = [read_run(path) for path in paths]
    console = Console()
    console.print(comparison_table(records))
    console.print(explanation(records), highlight=False, style="dim")
    console.print(f"report: {report}", highlight=False, soft_wrap=True)


def evaluate(path: Path, split: str, executor: str, workers: int | None) -> dict[str, Any]:
    """`fedopt eval`: every example of a split, and how the metric spreads over clients."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    loaded = load(path)
    task = find_task(loaded.config.task)
    problem = problem_of(task, loaded.config, partial(build, "fedavg", None, None, {}))  # nothing is trained
    clients = getattr(problem.federation(), split)
    with open_executor(executor, workers) as place, single_thread():
        place.load(problem, clients.gather(np.arange(1)))
        parts = measure_clients(place, loaded.x, split, len(clients.ids))
    by_client = np.array([means([part])[task.metric] for part in parts])
    known = by_client[np.isfinite(by_client)]  # a client may have nothing that the metric counts
    return {
        "run": str(path),
        "round": loaded.round,
        "split": split,
        "data": problem.federation().source,
        "clients": len(parts),
        "examples": sum(part.examples for part in parts),
        "metric": task.metric,
        **{name: finite(value) for name, value in means(parts).items()},
        "percentiles_over_clients": {
            str(q): float(np.percentile(known, q)) if len(known) else None for q in PERCENTILES
        },
    }


def print_evaluation(measured: Mapping[str, Any]) -> None:
    unit = unit_of(measured["metric"])
    table = Table(
        title=f"{measured['run']}, round {measured['round']}, {measured['split']} split, "
        f"{measured['data']} data"
    )
    table.add_column("over")
    table.add_column(unit.name, justify="right")
    rows = {f"all {measured['examples']:,} examples": measured[measured["metric"]]}
    rows |= {f"clients, {q}th percentile": v for q, v in measured["percentiles_over_clients"].items()}
    for name, value in rows.items():
        table.add_row(name, "-" if value is None else unit.text(value))
    console = Console()
    console.print(table)
    loss = "not finite" if measured["loss"] is None else f"{measured['loss']:.4f}"
    console.print(f"loss {loss} over {measured['clients']:,} clients", highlight=False)
