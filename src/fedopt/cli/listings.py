"""The tables of `fedopt tasks` and `fedopt algorithms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, AlgorithmEntry, keywords
from fedopt.tasks import TASKS, Task
from fedopt.tasks.base import LogRange, PaperSettings, Rates, TaskSettings


def _grid(grid: LogRange) -> str:
    return f"{grid.first:g}:{grid.last:g}:{grid.step:g}"


def _rates(rates: Rates) -> str:
    return " ".join(f"{value:g}" for value in rates if value is not None)


def _unit(metric: str) -> str:
    """The metric with the unit of the paper's table."""
    return "MSE x 1000" if metric == "mse" else f"{metric.replace('_', ' ')} %"


def result_text(task: Task, value: float) -> str:
    """A result with as many digits as in the paper."""
    return f"{value:.2f}" if task.metric == "mse" else f"{value:.1f}"


def _table(title: str, *columns: str) -> Table:
    """A table whose first column is never wrapped."""
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=False)
    for at, name in enumerate(columns):
        table.add_column(name, no_wrap=at == 0, justify="left" if at == 0 else "right")
    return table


def print_tasks(console: Console | None = None) -> None:
    """Print the paper's tasks with its settings, best rates and results, then the other tasks."""
    console = console or Console(emoji=False)
    papers = {task.name: task.paper for task in TASKS.values() if task.paper is not None}
    names = list(next(iter(papers.values())).rates)
    results = _table("The paper's results on the real data", "task", "metric", *names)
    for name, paper in papers.items():
        task = TASKS[name]
        _print_task(console, task)
        numbers = [result_text(task, paper.results[column]) for column in names]
        results.add_row(name, _unit(task.metric), *numbers)
    settings, rates = _settings_tables("The paper's", papers, names)
    for table in (settings, rates, results):
        console.print(table)
    console.print(
        f"Grids are in log10, first:last:step; tau is tuned over {_grid(PaperSettings.tau_grid)}. The paper "
        "has no rates for SCAFFOLD; its default rates are FedAvg's.\n",
        highlight=False,
    )
    others = {task.name: task.settings for task in TASKS.values() if task.settings and not task.paper}
    console.print("[bold]Tasks that are not in the paper[/bold]")
    for name in others:
        _print_task(console, TASKS[name])
    for table in _settings_tables("Our", others, names):
        console.print(table)


def _print_task(console: Console, task: Task) -> None:
    console.print(f"[bold]{task.name}[/bold]  {task.what}; metric: {task.metric}", highlight=False)


def _settings_tables(
    whose: str, tasks: Mapping[str, TaskSettings], algorithms: Sequence[str]
) -> tuple[Table, Table]:
    """Build the tables of the settings and of the best rates."""
    settings = _table(f"{whose} settings", "task", "rounds", "clients", "batch", "client grid", "server grid")
    rates = _table(f"{whose} best log10 rates: client, server, tau", "task", *algorithms)
    for name, known in tasks.items():
        counts = [f"{n:,}" for n in (known.rounds, known.clients_per_round, known.batch_size)]
        settings.add_row(name, *counts, _grid(known.client_grid), _grid(known.server_grid))
        rates.add_row(name, *(_rates(known.rates[algorithm]) for algorithm in algorithms))
    return settings, rates


def print_algorithms(console: Console | None = None) -> None:
    """Print the algorithms with their optimizers and options."""
    console = console or Console(emoji=False)
    table = Table(title="Algorithms", title_justify="left", title_style="bold", show_lines=True)
    table.add_column("algorithm", no_wrap=True)
    table.add_column("description and options (--set key=value)", ratio=1)
    for name, entry in ALGORITHMS.items():
        lines = [f"{entry.what} [{entry.paper}]".replace("[", r"\[")]
        lines.append(f"client {_optimizers(entry.clients)}; server {_optimizers(entry.servers)}")
        options = _options(entry)
        table.add_row(name, "\n".join([*lines, *([", ".join(options)] if options else [])]))
    console.print(table)
    console.print(
        f"any: {', '.join(OPTIMIZERS)}. `fedopt run TASK --algorithm NAME --show-config` prints every "
        "key with its value.",
        highlight=False,
    )


def _optimizers(names: tuple[str, ...]) -> str:
    return "any" if names == tuple(OPTIMIZERS) else ", ".join(names) or "its own update rule"


def _options(entry: AlgorithmEntry) -> list[str]:
    """Options of the algorithm, and of its server optimizer if there is only one."""
    names = [f"{side}.{key}" for side, factory in entry.options.items() for key in keywords(factory)]
    if len(entry.servers) == 1:
        names += [f"server.{key}" for key in keywords(OPTIMIZERS[entry.servers[0]])]
    return names
