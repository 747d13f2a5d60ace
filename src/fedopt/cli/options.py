"""Arguments and options that several commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedopt.cli.completion import TASK_NAMES, complete_algorithms, complete_task
from fedopt.errors import ConfigError, unknown
from fedopt.formatting import printable

TaskArgument = Annotated[
    str,
    typer.Argument(
        help="A task of `fedopt tasks`, or module:name of your own.",
        metavar="TASK",
        autocompletion=complete_task,
    ),
]
Algorithms = Annotated[
    str,
    typer.Option(
        "--algorithms",
        "--algorithm",
        help="Algorithms of `fedopt algorithms`, or module:name of your own, separated by commas.",
        metavar="A,B,...",
        autocompletion=complete_algorithms,
    ),
]
OwnTask = Annotated[
    str | None,
    typer.Option(
        "--task", help="The task, if the run was started from Python with an object.", metavar="MODULE:NAME"
    ),
]
# URLs are texts, because `Path` would change hdfs:///user/run to hdfs:/user/run.
RunArgument = Annotated[str, typer.Argument(help="A run directory or its URL.", metavar="RUN")]
Rounds = Annotated[int | None, typer.Option(help="Total number of rounds; default: the task's own number.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
Seeds = Annotated[
    str | None,
    typer.Option(help="Several runs: 0:5 for seeds 0 to 4, or 3,5,8. Replaces --seed.", metavar="FIRST:STOP"),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A configuration key, as key=value.", metavar="KEY=VALUE")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of worker processes; default: one per core; 1 for vectorised and compiled."),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        help="processes, serial or ray (identical results); vectorised or compiled (for small models; "
        "results differ by rounding); auto: compiled or processes, by the size of the problem.",
    ),
]
TrialExecutorName = Annotated[
    str, typer.Option("--executor", help="processes, or ray to run trials on a cluster (identical results).")
]
Device = Annotated[
    str,
    typer.Option(help="cpu, cuda, mps or auto. Devices other than the CPU imply --executor vectorised."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster: 'auto' or HOST:PORT; by default, --executor ray starts one in this process.",
        metavar="ADDRESS",
    ),
]
RayGpus = Annotated[
    float | None,
    typer.Option(help="GPUs that a Ray worker reserves; default: 1 if --device is not the CPU."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Data of a built-in task: 'synthetic' (default), an imported dataset (see `fedopt data list`), "
        "its directory or its URL.",
        metavar="NAME|DIR|URL",
    ),
]
RuleOption = Annotated[
    str,
    typer.Option(
        help="Rank by the last evaluation (last) or by the mean over the last 100 rounds (paper).",
        metavar="RULE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Init = Annotated[Path | None, typer.Option(help="Initial weights (safetensors).", metavar="FILE")]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="The same as --log tensorboard: event files in RUN/tensorboard.")
]


LogOption = Annotated[
    str | None,
    typer.Option("--log", help="Loggers: tensorboard, wandb, mlflow.", metavar="A,B,..."),
]


def parse_log_option(log: str | None, tensorboard: bool) -> tuple[bool, tuple[str, ...]]:
    """Whether to write event files, and the names of the other loggers."""
    names = [name.strip() for name in (log or "").split(",") if name.strip()]
    if names:
        from fedopt.runs.loggers import check_loggers

        check_loggers(names)
    return tensorboard or "tensorboard" in names, tuple(name for name in names if name != "tensorboard")


def parse_set_options(settings: Iterable[str] | None, rounds: int | None, seed: int | None) -> dict[str, Any]:
    """The values of --set, --rounds and --seed as one mapping."""
    from fedopt.runs.resolve import parse_settings

    parsed = parse_settings(settings or [])
    options = {name: value for name, value in (("rounds", rounds), ("seed", seed)) if value is not None}
    for name in options:
        if name in parsed:
            raise ConfigError(f"--{name} and --set {name} exclude each other; give one", keys=(name,))
    return parsed | options


def select_settings(algorithm: str, settings: Iterable[str], algorithms: Sequence[str]) -> list[str]:
    """The settings of one algorithm: key=value for all, then ALGORITHM:key=value for this one."""
    common, own = [], []
    for setting in settings:
        name, colon, _ = setting.partition("=")[0].rpartition(":")  # a reference has a colon of its own
        if not colon:
            common.append(setting)
        elif name not in algorithms:
            raise unknown("algorithm in --set", name, algorithms)
        elif name == algorithm:
            own.append(setting[len(name) + 1 :])
    return [*common, *own]


def parse_seed_option(seeds: str | None, seed: int | None, settings: Iterable[str]) -> list[int] | None:
    """Read the option --seeds. Refuse --seed and --set seed beside it.

    Args:
        seeds: the value of --seeds, or None.
        seed: the value of --seed, or None.
        settings: the values of --set.

    Returns:
        The seeds, or None without --seeds.

    Examples:
        >>> parse_seed_option("0:3", None, [])
        [0, 1, 2]
    """
    if seeds is None:
        return None
    from fedopt.reports.seeds import parse_seeds

    names = [setting.partition("=")[0].rpartition(":")[2].strip() for setting in settings]
    if seed is not None or "seed" in names:
        other = "--set seed" if seed is None else "--seed"
        raise ConfigError(f"{other} and --seeds exclude each other; give one", keys=("seed",))
    return parse_seeds(seeds)


def typed_command() -> str:
    """The command line of this process."""
    return "fedopt " + shlex.join(sys.argv[1:])


def announce(*parts: object) -> None:
    """Print a heading on stderr. It appears at once, before the imports that take a second.

    Args:
        parts: the parts of the heading; empty ones are left out.

    Returns:
        None.

    Examples:
        >>> announce("reproduce", "tau", "scale smoke")
    """
    typer.echo(printable(" · ".join(str(part) for part in parts if part)), err=True)


def announce_training(task: str, algorithms: str, data: str | None, *more: str) -> None:
    """Print the heading of a command that trains."""
    source = data or ("synthetic" if task in TASK_NAMES else "")
    announce(task, ", ".join(name.strip() for name in algorithms.split(",")), *more, source)


def announce_variant(task: str, settings: Mapping[str, Any]) -> None:
    """Print in the heading that the paper's rates belong to the other variant, if a run uses these rates."""
    from fedopt.tasks import PAPER_TASKS

    uses_rates = task in PAPER_TASKS and not {"client.lr", "server.lr"} <= settings.keys()
    if uses_rates and settings.get("variant", "as_printed") == "as_printed":
        announce("variant as_printed", "the paper's rates were tuned with the authors' code (variant=as_run)")


def announce_run(run: str, *more: str) -> None:
    """Print the heading of a command that reads a run: its directory, task and algorithm."""
    from fedopt.documents import parse_json, read_regular_file

    try:
        info = parse_json(read_regular_file(Path(run) / "run.json"))
        names = [str(info[key]) for key in ("task", "algorithm") if key in info]
    except (OSError, ValueError, TypeError):
        names = []  # the command reports what is wrong
    announce(run, *names, *more)


def start_workers_early(executor: str) -> None:
    """Start the server of worker processes, which imports torch at the same time as this process."""
    if executor == "processes":
        from fedopt.engine.worker_server import start_worker_server

        start_worker_server()
