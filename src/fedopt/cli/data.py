"""`fedopt data`: list, get, import and describe datasets. Results go to stdout, progress to stderr."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedopt.cli.options import Json
from fedopt.errors import DataError, RunError
from fedopt.formatting import count_noun, printable

if TYPE_CHECKING:
    from fedopt.data.importing.importer import ImportResult, OnProgress
    from fedopt.files import Log

app = typer.Typer(no_args_is_help=True, help="Real data: list, get, import, describe.")

Name = Annotated[str, typer.Argument(help="A dataset of `fedopt data list`.", metavar="NAME")]
To = Annotated[Path | None, typer.Option(help="Directory of the store; a cache by default.", metavar="DIR")]

UNCHECKED = "unchecked: an older version wrote no checksums; `data import` or `data get --replace` adds them"

# The options that `get` and `import` share: annotation and default value.
IMPORT_OPTIONS: dict[str, tuple[Any, Any]] = {
    "seed": (Annotated[int, typer.Option(help="Seed of CIFAR's partition, or of a table's test rows.")], 3),
    "train_clients": (Annotated[int, typer.Option(help="CIFAR: number of training clients.")], 500),
    "test_clients": (
        Annotated[
            int | None, typer.Option(help="CIFAR: number of test clients (100).", min=1, show_default=False)
        ],
        None,
    ),
    "digits": (Annotated[bool, typer.Option(help="EMNIST: the ten digits only.")], False),
    "replace": (Annotated[bool, typer.Option(help="Replace a store imported from other files.")], False),
    "skip_empty": (Annotated[bool, typer.Option(help="Leave out clients without examples.")], False),
    "limit_factor": (
        Annotated[
            float,
            typer.Option(
                help="Multiply the limits on size, memory and time, for large files that you trust.",
                metavar="FACTOR",
            ),
        ],
        1.0,
    ),
}


def with_import_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `**options` of a command by IMPORT_OPTIONS."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, (annotation, default) in IMPORT_OPTIONS.items():
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        )
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@app.command("list")
def list_datasets() -> None:
    """List the datasets and whether they are imported."""
    from fedopt.cache import data_directory
    from fedopt.data.importing.datasets import DATASETS
    from fedopt.data.store import is_store
    from fedopt.data.store.locations import store_directory

    for name, dataset in DATASETS.items():
        state = "imported" if is_store(store_directory(name)) else "not imported"
        typer.echo(f"{name:<14} {dataset.description} ({state})")
        typer.echo(f"{'':<14} {dataset.formats}; clients: {dataset.clients}")
    typer.echo(f"stored in {data_directory()} (set FEDOPT_DATA to use another directory)")


@app.command()
@with_import_options
def get(name: Name, to: To = None, **options: Any) -> None:
    """Download the public files of NAME, verify them and import them."""
    from fedopt.data.importing.datasets import import_options
    from fedopt.data.importing.downloads import get_dataset

    with _progress() as (log, on_progress):
        result = get_dataset(name, to, import_options(None, **options), log, on_progress)
    _print_result(result)


@app.command("import")
@with_import_options
def import_files(
    name: Name,
    path: Annotated[Path, typer.Argument(help="A file, a directory or an archive.", metavar="PATH")],
    to: To = None,
    client_column: Annotated[
        str | None, typer.Option(help="own: the column with the client; spaces around names are removed.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="own: the column with the label.")] = None,
    features: Annotated[
        str | None, typer.Option(help="own: feature columns; all others by default.", metavar="A,B,...")
    ] = None,
    split_column: Annotated[
        str | None, typer.Option(help="own: the column with train or test; file names by default.")
    ] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(
            "--test-fraction",
            "--test-share",
            help="own: share of each client's rows for the test split, if nothing else defines it (0.2).",
            show_default=False,
        ),
    ] = None,
    **options: Any,
) -> None:
    """Import local files as NAME. Their format is recognised from their content."""
    from fedopt.data.importing.datasets import import_options, table_columns
    from fedopt.data.importing.importer import import_dataset
    from fedopt.data.readers.limits import limited_memory

    columns = table_columns(
        name, client_column, label_column, features, split_column, test_fraction, options["seed"]
    )
    with _progress() as (log, on_progress):
        settings = import_options(columns, **options)
        with limited_memory(path, settings.limit_factor):
            result = import_dataset(name, [path], to, settings, log, on_progress)
    _print_result(result)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="The name of a dataset, or its directory.", metavar="NAME|DIR")],
    verify: Annotated[bool, typer.Option("--verify", help="Read all files and compare checksums.")] = False,
    as_json: Json = False,
) -> None:
    """Describe an imported dataset: clients, examples, client sizes and labels per client.

    A run, and this command, read all files once per machine, and again if a size or modification time has
    changed. Damage without such a change, as on a failing disk, is found by --verify only.
    """
    from fedopt.data.importing.published import differences
    from fedopt.data.store.describe import describe
    from fedopt.data.store.locations import find_store

    try:
        store = find_store(name, read_all=verify)
        if verify and not store.manifest["checksum"]:
            raise DataError(f"{store.directory} is {UNCHECKED}")
    except DataError as error:
        if not verify or error.path == Path(name):  # not a store
            raise
        raise RunError(str(error)) from None
    if verify:
        count = len(store.manifest["files"])
        typer.echo(json.dumps({"verified": count}) if as_json else f"verified: {count} files")
        return
    description = {**describe(store), "differences": differences(store)}
    typer.echo(json.dumps(description)) if as_json else _print_description(description)


def _print_description(description: dict[str, Any]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    from fedopt.data.store.describe import PERCENTILES, histogram

    def show(line: str) -> None:
        typer.echo(printable(line))  # a manifest may come from another person

    show(f"{description['name']} in {description['directory']}, imported by fedopt {description['fedopt']}")
    if not description["checksum"]:
        show(f"  {UNCHECKED}")
    for item in description["source"]:
        show(f"  from {item['file']}  {item['bytes']:,} bytes  sha256 {item['sha256'][:16]}...")
    for key, note in description["notes"].items():
        show(f"  {key}: {note if isinstance(note, str) else json.dumps(note)}")
    for difference in description["differences"]:
        show(f"  differs from the published dataset: {difference}")
    titles = ["clients", "examples", "least", *(f"{p} %" for p in PERCENTILES[1:-1]), "most"]
    table = Table("split", *(Column(title, justify="right") for title in titles), box=SIMPLE)
    for name, split in description["splits"].items():
        columns = ", ".join(f"{column} {_type(spec)}" for column, spec in split["columns"].items())
        show(f"  {name}: {columns}")
        counts = (split["clients"], split["examples"], *split["sizes"].values())
        table.add_row(escape(printable(name)), *(f"{n:,}" for n in counts))
    Console(emoji=False).print(table)
    for name, split in description["splits"].items():
        if "labels_per_client" in split:
            show("")
            show(f"{name}: clients by their number of different labels")
            for line in histogram(split["labels_per_client"]):
                typer.echo(line)


def _type(spec: dict[str, Any]) -> str:
    import numpy as np

    kind = np.dtype(spec["dtype"]).name
    return f"{kind} ragged" if spec.get("ragged") else f"{kind} {spec['shape'] or ''}".strip()


def _print_result(result: ImportResult) -> None:
    from fedopt.data.importing.published import differences

    store = result.store
    counts = "; ".join(
        f"{name} {count_noun(split['clients'], 'client')}, {count_noun(split['examples'], 'example')}"
        for name, split in store.manifest["splits"].items()
    )
    typer.echo(f"{store.name}: {counts}{'' if result.is_new else ' (imported before)'}")
    for difference in differences(store):
        typer.echo(f"warning: differs from the published dataset: {difference}", err=True)
    if store.name == "own":
        typer.echo(f"use it in Python: fedopt.own_task(model, loss, {str(store.directory)!r})")
    else:
        typer.echo(f"use it with --data {store.directory}")


@contextmanager
def _progress() -> Iterator[tuple[Log, OnProgress]]:
    """Show progress bars on a terminal, and a line every few seconds elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        yield (lambda text: typer.echo(text, err=True)), _print_progress_lines()
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(), console=console, transient=True,
    ) as bars:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def on_progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, count="")
            bars.update(tasks[what], completed=done, total=total, count=f"{done:,}")

        yield (lambda text: bars.console.print(text, markup=False, highlight=False)), on_progress


def _print_progress_lines(every: float = 5.0) -> OnProgress:
    last = time.monotonic()

    def on_progress(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            typer.echo(f"{what}: {done:,}{f' of {total:,}' if total else ''}", err=True)

    return on_progress
