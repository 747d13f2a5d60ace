"""The references of configuration keys and of commands."""

from __future__ import annotations

from functools import cache
from typing import Any

import tomli_w
import typer
from typer.cli import get_docs_for_click

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, keywords
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.cli.app import app
from fedopt.runs.config import Config
from fedopt.runs.key_descriptions import DESCRIPTIONS, annotated_toml
from fedopt.runs.records import flatten
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS
from generators.markdown import format_table

# Defaults that are not constants.
DEFAULTS = {
    "task": "required",
    "algorithm": "`fedavg`",
    "client.steps": "not set",
    "vectorised": "not set",
    "data.manifest": "not set",
    "client.initial_accumulator": "tau squared",
    "server.initial_accumulator": "tau squared",
    "eval.every": "by rounds",
    "stop.metric": "the task's",
}
EXAMPLE = ("emnist_cr", "fedyogi")  # task and algorithm of the example configuration
COMMON = resolve(TASKS[EXAMPLE[0]], "fedavg", {})  # its keys apply to every run


def list_keys() -> str:
    """List all configuration keys by table, with the sentences of `--show-config`."""
    tables = [name for name, value in COMMON.model_dump().items() if isinstance(value, dict)]
    parts = [_list_table("Run", [key for key in DESCRIPTIONS if "." not in key])]
    for table in tables:
        parts.append(
            _list_table(f"`[{table}]`", [key for key in DESCRIPTIONS if key.startswith(f"{table}.")])
        )
    return "\n\n".join(parts)


def _list_table(title: str, keys: list[str]) -> str:
    rows = [(f"`{key}`", DESCRIPTIONS[key], _default(key), _applies_to(key)) for key in keys]
    return f"## {title}\n\n" + format_table(("key", "description", "default", "applies to"), *rows)


@cache
def _resolved_defaults() -> dict[tuple[str, str], dict[str, Any]]:
    """The configuration of every task and federated algorithm without settings."""
    pairs = [(task, name) for task in TASKS for name in ALGORITHMS if name != "centralized"]
    return {pair: flatten(resolve(TASKS[pair[0]], pair[1], {}).document()) for pair in pairs}


def _default(key: str) -> str:
    """Return the default of a key, or what it depends on."""
    table, _, name = key.rpartition(".")
    if key in DEFAULTS:
        return DEFAULTS[key]
    found = {pair: values[key] for pair, values in _resolved_defaults().items() if key in values}
    if table in ("client", "server"):
        for owners, word in ((OPTIMIZERS, "optimizer"), (SCHEDULES, "schedule")):
            options = {keywords(owner)[name] for owner in owners.values() if name in keywords(owner)}
            if len(options) > 1:
                return f"by {word}"
            found = found or dict.fromkeys([("", "")] if options else [], next(iter(options), None))
    values = set(found.values())
    if len(values) == 1:
        return f"`{tomli_w.dumps({'value': values.pop()}).partition(' = ')[2].strip()}`"
    depends = [word for at, word in enumerate(("task", "algorithm")) if _varies(found, at)]
    return f"by {' and '.join(depends)}"


def _varies(values: dict[tuple[str, str], Any], at: int) -> bool:
    """Whether values differ between pairs that are equal except for the position `at`."""
    return any(
        values[pair] != values[other] for pair in values for other in values if pair[1 - at] == other[1 - at]
    )


def _applies_to(key: str) -> str:
    """Name the tasks, optimizers, schedules and algorithms that have a key; "all" if every run has it."""
    table, _, name = key.rpartition(".")
    if table in ("client", "server"):
        owners = [
            f"`{owner}`"
            for owner, factory in {**OPTIMIZERS, **SCHEDULES}.items()
            if name in keywords(factory)
        ]
        entries = ((owner, entry.options.get(table)) for owner, entry in ALGORITHMS.items())
        owners += [f"`{owner}`" for owner, factory in entries if factory and name in keywords(factory)]
    else:
        owners = [f"`{task.name}`" for task in TASKS.values() if name in _task_options(table, task.name)]
    return ", ".join(owners) or "all"


def _task_options(table: str, task: str) -> set[str]:
    factories = {
        "data": (TASKS[task].federation, TASKS[task].prepare),
        "model": (TASKS[task].model,),
        "loss": (TASKS[task].loss,),
    }
    return {name for factory in factories.get(table, ()) for name in keywords(factory)}


def example_configuration() -> str:
    """Return the output of `--show-config` for one task and algorithm."""
    task, algorithm = EXAMPLE
    config: Config = resolve(TASKS[task], algorithm, {})
    return f"```toml\n{annotated_toml(config, algorithm)}```"


def list_commands() -> str:
    """Describe every command with its arguments and options."""
    group = typer.main.get_command(app)
    context = group.make_context("fedopt", [], resilient_parsing=True)
    texts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        texts.append(get_docs_for_click(obj=command, ctx=context, indent=1, call_prefix="fedopt").strip())
    return "\n\n".join(texts)
