"""`fedopt data`: list, get, import and look at datasets. Results on stdout, progress on stderr."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedopt.data.importing.importer import Imported, Tick
    from fedopt.files import Log

app = typer.Typer(no_args_is_help=True, help="Real data: list, get, import, look at.")

Name = Annotated[str, typer.Argument(help="A dataset of `fedopt data list`.", metavar="NAME")]
To = Annotated[Path | None, typer.Option(help="Where the store goes; a cache by default.", metavar="DIR")]
Seed = Annotated[int, typer.Option(help="Fixes how CIFAR's images, or a table's test rows, are dealt.")]
TrainClients = Annotated[int, typer.Option(help="CIFAR: clients that the training images are dealt to.")]
TestClients = Annotated[int, typer.Option(help="CIFAR: clients that the test images are dealt to.")]
Digits = Annotated[bool, typer.Option(help="EMNIST: the ten digits only.")]
Replace = Annotated[bool, typer.Option(help="Replace what was imported there from other files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("list")
def list_datasets() -> None:
    """The datasets, and which of them are imported."""
    from fedopt.data.importing.datasets import DATASETS
    from fedopt.data.store import is_store
    from fedopt.data.store.locations import data_directory, store_directory

    for name, dataset in DATASETS.items():
        here = "imported" if is_store(store_directory(name)) else "not imported"
        typer.echo(f"{name:<14} {dataset.what} ({here})")
        typer.echo(f"{'':<14} {dataset.formats}; clients: {dataset.clients}")
    typer.echo(f"kept in {data_directory()} (FEDOPT_DATA names another directory)")


@app.command()
def get(
    name: Name,
    to: To = None,
    seed: Seed = 3,
    train_clients: TrainClients = 500,
    test_clients: TestClients = 100,
    digits: Digits = False,
    replace: Replace = False,
) -> None:
    """Download the public files of NAME, check them and import them."""
    from fedopt.data.importing.datasets import Options
    from fedopt.data.importing.downloads import get_dataset

    options = Options(seed, train_clients, test_clients, digits, replace=replace)
    with _progress() as (say, tick):
        done = get_dataset(name, to, options, say, tick)
    _report(done)


@app.command("import")
def import_files(
    name: Name,
    path: Annotated[Path, typer.Argument(help="A file, a directory or an archive.", metavar="PATH")],
    to: To = None,
    seed: Seed = 3,
    train_clients: TrainClients = 500,
    test_clients: TestClients = 100,
    digits: Digits = False,
    replace: Replace = False,
    client_column: Annotated[str | None, typer.Option(help="own: the column with the client.")] = None,
    label_column: Annotated[str | None, typer.Option(help="own: the column with the label.")] = None,
    features: Annotated[
        str | None, typer.Option(help="own: feature columns; all others by default.", metavar="A,B,...")
    ] = None,
    split_column: Annotated[
        str | None, typer.Option(help="own: the column that says train or test; else file names do.")
    ] = None,
    test_share: Annotated[
        float, typer.Option(help="own: share of each client's rows to test on, if nothing else says.")
    ] = 0.2,
) -> None:
    """Import files that are already here as NAME; their format is recognised from their content."""
    from fedopt.data.importing.datasets import Options, roles
    from fedopt.data.importing.importer import import_dataset

    columns = roles(name, client_column, label_column, features, split_column, test_share, seed)
    options = Options(seed, train_clients, test_clients, digits, columns, replace)
    with _progress() as (say, tick):
        done = import_dataset(name, [path], to, options, say, tick)
    _report(done)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="A dataset's name, or a directory of one.", metavar="NAME|DIR")],
    as_json: Json = False,
) -> None:
    """What was imported: clients, examples, sizes, and how many labels clients have."""
    from fedopt.data.store.describe import describe
    from fedopt.data.store.locations import find_store

    found = describe(find_store(name))
    typer.echo(json.dumps(found)) if as_json else _print_info(found)


def _print_info(found: dict[str, Any]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Column, Table

    from fedopt.data.store.describe import PERCENTILES, histogram

    typer.echo(f"{found['name']} in {found['directory']}, imported by fedopt {found['fedopt']}")
    for item in found["source"]:
        typer.echo(f"  from {item['file']}  {item['bytes']:,} bytes  sha256 {item['sha256'][:16]}...")
    for key, note in found["notes"].items():
        typer.echo(f"  {key}: {note if isinstance(note, str) else json.dumps(note)}")
    marks = ["clients", "examples", "least", *(f"{p} %" for p in PERCENTILES[1:-1]), "most"]
    table = Table("split", *(Column(mark, justify="right") for mark in marks), box=SIMPLE)
    for name, split in found["splits"].items():
        columns = ", ".join(f"{column} {_type(spec)}" for column, spec in split["columns"].items())
        typer.echo(f"  {name}: {columns}")
        counts = (split["clients"], split["examples"], *split["sizes"].values())
        table.add_row(name, *(f"{n:,}" for n in counts))
    Console(emoji=False).print(table)
    for name, split in found["splits"].items():
        if "labels_per_client" in split:
            typer.echo(f"\n{name}: clients by their number of different labels")
            for line in histogram(split["labels_per_client"]):
                typer.echo(line)


def _type(spec: dict[str, Any]) -> str:
    import numpy as np

    kind = np.dtype(spec["dtype"]).name
    return f"{kind} ragged" if spec.get("ragged") else f"{kind} {spec['shape'] or ''}".strip()


def _report(done: Imported) -> None:
    store = done.store
    counts = "; ".join(
        f"{name} {split['clients']:,} clients, {split['examples']:,} examples"
        for name, split in store.manifest["splits"].items()
    )
    typer.echo(f"{store.name}: {counts}{'' if done.fresh else ' (imported before)'}")
    if store.name == "own":
        typer.echo(f"use it in Python: fedopt.own_task(model, loss, {str(store.directory)!r})")
    else:
        typer.echo(f"use it with --data {store.directory}")


@contextmanager
def _progress() -> Iterator[tuple[Log, Tick]]:
    """Bars on a terminal, a line every few seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        yield (lambda text: typer.echo(text, err=True)), _lines()
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(), console=console, transient=True,
    ) as bars:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def tick(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, count="")
            bars.update(tasks[what], completed=done, total=total, count=f"{done:,}")

        yield (lambda text: bars.console.print(text, markup=False, highlight=False)), tick


def _lines(every: float = 5.0) -> Callable[[str, int, int | None], None]:
    last = time.monotonic()

    def tick(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            typer.echo(f"{what}: {done:,}{f' of {total:,}' if total else ''}", err=True)

    return tick
