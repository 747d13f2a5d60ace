"""The tables of `fedopt tasks` and `fedopt algorithms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, AlgorithmEntry, keywords
from fedopt.formatting import metric_unit
from fedopt.reports.tables import Column, Table
from fedopt.tasks import TASKS, Task
from fedopt.tasks.base import LogRange, PaperSettings, Rates, TaskSettings


def _grid(grid: LogRange) -> str:
    return f"{grid.first:g}:{grid.last:g}:{grid.step:g}"


def _rates(rates: Rates) -> str:
    return " ".join(f"{value:g}" for value in rates if value is not None)


def _unit(metric: str) -> str:
    """The metric with the unit of the paper's table."""
    unit = metric_unit(metric)
    return f"{unit.name}{unit.suffix}"


def result_text(task: Task, value: float) -> str:
    """A result with as many digits as in the paper."""
    return f"{value:.2f}" if task.metric == "mse" else f"{value:.1f}"


def _print_table(
    console: Console, title: str, rows: Mapping[str, Sequence[str]], titles: Sequence[str]
) -> None:
    """Print a table with one row per task. A narrow terminal shows it in several parts."""
    columns = [Column.of(*pair) for pair in zip(titles, zip(*rows.values(), strict=True), strict=True)]
    for part in Table(title, "task", [Text(name) for name in rows], columns).split(console.width):
        console.print(part.fit(console.width))
        console.print()


def print_tasks(console: Console | None = None) -> None:
    """Print the paper's tasks with its settings, best rates and results, then the other tasks."""
    console = console or Console(emoji=False)
    papers = {task.name: task.paper for task in TASKS.values() if task.paper is not None}
    names = list(next(iter(papers.values())).rates)
    _print_descriptions(console, [TASKS[name] for name in papers])
    _print_settings(console, "The paper's", papers, names)
    results = {
        name: [_unit(TASKS[name].metric), *(result_text(TASKS[name], paper.results[n]) for n in names)]
        for name, paper in papers.items()
    }
    _print_table(console, "The paper's results on the real data", results, ["metric", *names])
    console.print(
        f"Grids are in log10, first:last:step; tau is tuned over {_grid(PaperSettings.tau_grid)}. The paper "
        "has no rates for SCAFFOLD; its default rates are FedAvg's.\n",
        highlight=False,
    )
    others = {task.name: task.settings for task in TASKS.values() if task.settings and not task.paper}
    console.print("[bold]Tasks that are not in the paper[/bold]")
    _print_descriptions(console, [TASKS[name] for name in others])
    _print_settings(console, "Our", others, names)


def _print_descriptions(console: Console, tasks: Sequence[Task]) -> None:
    table = RichTable.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for task in tasks:
        table.add_row(task.name, f"{task.what}; metric: {metric_unit(task.metric).name}")
    console.print(table)
    console.print()


def _print_settings(
    console: Console, whose: str, tasks: Mapping[str, TaskSettings], algorithms: Sequence[str]
) -> None:
    """Print the tables of the settings and of the best rates."""
    settings = {
        name: [
            *(f"{n:,}" for n in (known.rounds, known.clients_per_round, known.batch_size)),
            _grid(known.client_grid),
            _grid(known.server_grid),
        ]
        for name, known in tasks.items()
    }
    titles = ["rounds", "clients", "batch", "client grid", "server grid"]
    _print_table(console, f"{whose} settings", settings, titles)
    rates = {name: [_rates(known.rates[a]) for a in algorithms] for name, known in tasks.items()}
    _print_table(console, f"{whose} best log10 rates: client, server, tau", rates, algorithms)


def print_algorithms(console: Console | None = None) -> None:
    """Print the algorithms with their optimizers and options."""
    console = console or Console(emoji=False)
    table = RichTable(title="Algorithms", title_justify="left", title_style="bold", show_lines=True)
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
