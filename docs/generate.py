"""Fills the parts of the documents that come from the code, between `<!-- name -->` and `<!-- /name -->`.

python docs/generate.py            # rewrites them
python docs/generate.py --check    # exits 1 if one is out of date, as the tests do
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, keywords
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.cli.listings import result_text
from fedopt.tasks import TASKS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "docs/tasks.md")


def code(example: str) -> str:
    """An example as it is, without its docstring's quotes being touched."""
    return f"```python\n{(ROOT / 'examples' / example).read_text()}```"


def table(*rows: tuple[object, ...]) -> str:
    head, *body = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def algorithms() -> str:
    rows = [(f"`{name}`", entry.what, entry.paper) for name, entry in ALGORITHMS.items()]
    names = ", ".join(f"`{name}`" for name in OPTIMIZERS)
    return (
        table(("name", "what it is", "in the paper"), *rows)
        + f"\n\nOptimizers, for clients and server alike: {names}. Schedules for both rates: "
        + ", ".join(f"`{name}`" for name in SCHEDULES)
        + ", each with linear warm-up."
    )


def tasks() -> str:
    rows: list[tuple[object, ...]] = []
    for task in TASKS.values():
        paper = task.paper
        assert paper is not None
        d = sum(p.numel() for p in task.model().parameters() if p.requires_grad)
        settings = (f"{paper.rounds:,}", paper.clients_per_round, paper.batch_size)
        rows.append((f"`{task.name}`", task.what, f"{d:,}", task.metric, *settings))
    return table(("name", "what", "parameters", "metric", "rounds", "clients a round", "batch"), *rows)


def _log(values: Iterable[float | None]) -> str:
    return " / ".join(f"{value:g}" for value in values if value is not None)


def settings() -> str:
    """The paper's settings, best rates and results of every task."""
    parts = []
    for task in TASKS.values():
        paper = task.paper
        assert paper is not None
        grids = {"client_lr": paper.client_grid, "server_lr": paper.server_grid, "tau": paper.tau_grid}
        grid = ", ".join(f"{name}={g.first:g}:{g.last:g}:{g.step:g}" for name, g in grids.items())
        options = {"data": task.federation, "model": task.model, "loss": task.loss}
        keys = [f"`{t}.{key}`" for t, factory in options.items() for key in keywords(factory)]
        keys += [f"`data.{key}`" for key in keywords(task.prepare)]
        parts += [
            f"## `{task.name}`",
            f"{task.what[0].upper()}{task.what[1:]}. Metrics: {', '.join(task.metrics)}; the first is the "
            f"headline, {task.better} is better. The loss of a batch is the {task.reduction} over its "
            f"examples. {paper.rounds:,} rounds of {paper.clients_per_round} clients, batch "
            f"{paper.batch_size}.",
            f"Grid (log10): `{grid}`. Options: {', '.join(keys)}.",
            table(
                ("", *paper.rates),
                ("best log10 rates: client / server / tau", *(_log(rates) for rates in paper.rates.values())),
                ("the paper's result", *(result_text(task, paper.results[name]) for name in paper.rates)),
            ),
        ]
    return "\n\n".join(parts)


PARTS = {
    "settings": settings,
    "quickstart": lambda: code("quickstart.py"),
    "my_algorithm": lambda: code("my_algorithm.py"),
    "algorithms": algorithms,
    "tasks": tasks,
}


def fill(text: str) -> str:
    """`text` with every part between its marks made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, found, rest = text.partition(begin)
        if found:
            text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        before, after = path.read_text(), fill(path.read_text())
        if before != after:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        raise SystemExit(f"out of date: {', '.join(stale)}; run python docs/generate.py")


if __name__ == "__main__":
    main()
