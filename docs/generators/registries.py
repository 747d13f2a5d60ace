"""Lists of the algorithms and tasks of the package."""

from __future__ import annotations

from collections.abc import Iterable

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, keywords
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.cli.listings import result_text
from fedopt.tasks import PAPER_TASKS, TASKS, Task
from fedopt.tasks.base import TaskSettings
from generators.markdown import format_table


def list_algorithms() -> str:
    """List the algorithms, optimizers and schedules."""
    rows = [(f"`{name}`", entry.what, entry.paper) for name, entry in ALGORITHMS.items()]
    names = ", ".join(f"`{name}`" for name in OPTIMIZERS)
    return (
        format_table(("name", "description", "in the paper"), *rows)
        + f"\n\nOptimizers for clients and the server: {names}. Learning-rate schedules for both: "
        + ", ".join(f"`{name}`" for name in SCHEDULES)
        + ", each with optional linear warm-up."
    )


def list_tasks() -> str:
    """List all tasks, the paper's first."""
    rows: list[tuple[object, ...]] = []
    for task in sorted(TASKS.values(), key=lambda task: task.paper is None):
        known = _settings(task)
        d = sum(p.numel() for p in task.model().parameters() if p.requires_grad)
        numbers = (f"{known.rounds:,}", known.clients_per_round, known.batch_size)
        rows.append((f"`{task.name}`", task.what, f"{d:,}", task.metric, *numbers))
    header = ("name", "description", "parameters", "metric", "rounds", "clients per round", "batch size")
    return format_table(header, *rows)


def _settings(task: Task) -> TaskSettings:
    assert task.settings is not None
    return task.settings


def _join_rates(values: Iterable[float | None]) -> str:
    return " / ".join(f"{value:g}" for value in values if value is not None)


def _describe_metrics(task: Task) -> str:
    better = f"{task.better} is better"
    if len(task.metrics) == 1:
        return f"Metric: {task.metric} ({better})."
    return f"Metrics: {', '.join(task.metrics)} ({better}). The main metric is {task.metric}."


def describe_paper_tasks() -> str:
    """Describe the paper's settings, best rates and results of its tasks."""
    return "\n\n".join(map(_describe_task, PAPER_TASKS.values()))


def describe_other_tasks() -> str:
    """Describe settings and best rates of the tasks that are not in the paper."""
    return "\n\n".join(_describe_task(task) for task in TASKS.values() if task.paper is None)


def _describe_task(task: Task) -> str:
    known = _settings(task)
    grids = {"client_lr": known.client_grid, "server_lr": known.server_grid, "tau": known.tau_grid}
    grid = ", ".join(f"{name}={g.first:g}:{g.last:g}:{g.step:g}" for name, g in grids.items())
    factories = {"data": task.federation, "model": task.model, "loss": task.loss}
    keys = [f"`{part}.{key}`" for part, factory in factories.items() for key in keywords(factory)]
    keys += [f"`data.{key}`" for key in keywords(task.prepare)]
    rows: list[tuple[object, ...]] = [
        ("best rates (log10): client / server / tau", *map(_join_rates, known.rates.values()))
    ]
    if task.paper is not None:
        results = [result_text(task, task.paper.results[name]) for name in known.rates]
        rows.append(("result in the paper", *results))
    return "\n\n".join(
        (
            f"### `{task.name}`",
            f"{task.what[0].upper()}{task.what[1:]}. {_describe_metrics(task)} The loss of a batch is the "
            f"{task.reduction} over its examples. {known.rounds:,} rounds, {known.clients_per_round} "
            f"clients per round, batch size {known.batch_size}.",
            f"Grid (log10): `{grid}`. Configuration keys: {', '.join(keys)}.",
            format_table(("", *known.rates), *rows),
        )
    )
