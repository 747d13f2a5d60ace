"""Grids: which values each axis takes, in the paper's notation.

Rates and tau are written as log10, `first:last:step`, because the paper's grids are steps of a half there:
`client_lr=-3:0.5:0.5, server_lr=-3:1:0.5, tau=-5:-1:1`. Any other configuration key may be an axis too,
with its plain values: `client.epochs=1|5`.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopt.algorithms import ALGORITHMS
from fedopt.errors import UserError, unknown
from fedopt.runs.records import flatten
from fedopt.runs.resolve import parse_settings, resolve
from fedopt.tasks import Task
from fedopt.tasks.base import LogRange

LOG10_AXES = {"client_lr": "client.lr", "server_lr": "server.lr", "tau": "server.tau"}
PLAIN_AXES = ("clients_per_round", "weighting", "sampling", "variant", "patience", "buffers")  # no dot
LARGEST_AXIS = 1000  # values; a step that is far too small is a typing mistake
LARGEST_GRID = 100_000  # points
LARGEST_LOG10 = 38  # rates beyond do not exist in float32

Value = float | int | str | bool
Grid = Mapping[str, tuple[Value, ...]]  # axis -> its values; log10 for the three of LOG10_AXES
Point = Mapping[str, Value]  # one value for each axis


def paper_grid(
    task: Task, algorithm: str, settings: Mapping[str, Any] | None = None
) -> dict[str, tuple[Value, ...]]:
    """What the paper tried for this task, with tau where the algorithm has one."""
    paper = task.paper
    if paper is None:
        raise UserError(
            f"the paper has no grid for {task.name}; write one, such as --grid 'client_lr=-2:0:0.5'"
        )
    ranges = {"client_lr": paper.client_grid, "server_lr": paper.server_grid, "tau": paper.tau_grid}
    if algorithm == "centralized":
        del ranges["server_lr"]
    grid = {axis: range_.values for axis, range_ in ranges.items()}
    return applicable(grid, task, algorithm, settings)


def applicable(
    grid: Grid, task: Task, algorithm: str, settings: Mapping[str, Any] | None = None
) -> dict[str, tuple[Value, ...]]:
    """The grid without the axis tau where the algorithm, with these settings beside it, has none."""
    if algorithm not in ALGORITHMS:
        raise unknown("algorithm", algorithm, ALGORITHMS)
    if "tau" not in grid:
        return dict(grid)
    has_tau = "server.tau" in flatten(resolve(task, algorithm, settings or {}).document())
    return {axis: values for axis, values in grid.items() if axis != "tau" or has_tau}


def check_grid(grid: Grid, settings: Mapping[str, Any]) -> None:
    """Refuse what would be ignored, one key with two sources of values, and grids without end."""
    keys = [LOG10_AXES.get(axis, axis) for axis in grid]
    for axis, key in zip(grid, keys, strict=True):
        if keys.count(key) > 1:
            raise UserError(f"--grid has two axes for {key}; leave one out")
        if key in settings:
            raise UserError(f"--set {key} and the axis {axis} of --grid exclude each other; leave one out")
    size = math.prod(map(len, grid.values()))
    if size > LARGEST_GRID:
        raise UserError(f"--grid has {size:,} points; allowed: up to {LARGEST_GRID:,}; choose larger steps")


def read_grid(text: str) -> dict[str, tuple[Value, ...]]:
    """A grid from a TOML file, or from text such as `client_lr=-3:0.5:0.5, tau=-3`."""
    text = text.strip()
    if text.endswith(".toml") or _is_file(text):
        return _from_file(Path(text))
    if not text.strip(","):
        raise UserError("--grid is empty; write axes, such as client_lr=-3:0:0.5, or paper")
    grid: dict[str, tuple[Value, ...]] = {}
    for part in re.split(r"[,\s]+(?=[\w.]+\s*=)", text.strip(", ")):
        axis, equals, values = (piece.strip() for piece in part.partition("="))
        if not equals or not axis or not values:
            raise UserError(
                f"--grid: {part!r} is neither a file nor of the form axis=first:last:step, such as "
                "client_lr=-3:0:0.5"
            )
        if axis in grid:
            raise UserError(
                f"--grid names {axis!r} twice; write all its values in one place, such as {axis}=-2|-1"
            )
        grid[axis] = _parse(axis, values)
    return grid


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with characters that none has
        return False


def _from_file(file: Path) -> dict[str, tuple[Value, ...]]:
    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise UserError(f"--grid {file}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, not text, or no name of a file
        raise UserError(f'--grid {file}: {error}; a line looks like client_lr = "-3:0.5:0.5"') from error
    grid = {}
    for axis, values in flatten(document).items():
        if isinstance(values, str) and axis in LOG10_AXES:
            grid[axis] = _parse(axis, values)
        else:
            grid[axis] = _checked(axis, values if isinstance(values, list) else [values])
    if not grid:
        raise UserError(f'--grid {file} has no axis; a line looks like client_lr = "-3:0.5:0.5"')
    return grid


def _parse(axis: str, text: str) -> tuple[Value, ...]:
    """`-3:0.5:0.5`, or values with bars between: `-2|-1`."""
    if axis not in LOG10_AXES:
        return _checked(axis, [parse_settings([f"value={word}"])["value"] for word in text.split("|")])
    try:
        if ":" not in text:
            return _checked(axis, [float(word) for word in text.split("|")])
        first, last, step = (float(word) for word in text.split(":"))
    except ValueError:
        raise UserError(
            f"--grid: {axis}={text} is neither first:last:step in log10, such as -3:0.5:0.5, nor values "
            "such as -2|-1"
        ) from None
    if not all(map(math.isfinite, (first, last, step))) or step <= 0 or last < first:
        raise UserError(
            f"--grid: {axis}={text} has no values; first:last:step needs first <= last and a step above 0"
        )
    if (last - first) / step >= LARGEST_AXIS:
        raise UserError(f"--grid: {axis}={text} has more than {LARGEST_AXIS} values; choose a larger step")
    return _checked(axis, LogRange(first, last, step).values)


def _checked(axis: str, values: Sequence[Any]) -> tuple[Value, ...]:
    if axis in ("rounds", "seed"):
        raise UserError(f"--grid: {axis} is no axis; use --{axis}{'s' if axis == 'seed' else ''}")
    if axis not in (*LOG10_AXES, *PLAIN_AXES) and "." not in axis:
        raise unknown(
            "axis of --grid", axis, [*LOG10_AXES, *PLAIN_AXES, "a dotted key such as client.epochs"]
        )
    for value in values:
        if not isinstance(value, float | int | str | bool):
            raise UserError(f"--grid: {axis} has the value {value!r}; expected numbers or words")
        if axis in LOG10_AXES and not _is_log10(value):
            raise UserError(
                f"--grid: {axis} has the value {value!r}; expected log10 of it, a number from "
                f"-{LARGEST_LOG10} to {LARGEST_LOG10}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--grid: {axis} has the value {value!r}, which is not finite")
    if not values:
        raise UserError(f"--grid: {axis} has no values; leave the axis out or give it some, such as -2|-1")
    return tuple(dict.fromkeys(float(v) + 0.0 if axis in LOG10_AXES else v for v in values))


def _is_log10(value: Value) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= LARGEST_LOG10


def points(grid: Grid) -> Iterator[dict[str, Value]]:
    """Every combination, the last axis changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def settings_of(point: Point) -> dict[str, Any]:
    """A point as configuration: what is in log10 is raised.

    >>> settings_of({"client_lr": -2.0, "client.epochs": 5})
    {'client.lr': 0.01, 'client.epochs': 5}
    """
    return {
        LOG10_AXES.get(axis, axis): 10.0 ** float(value) if axis in LOG10_AXES else value
        for axis, value in point.items()
    }


def describe(point: Point) -> str:
    """A point as it is written in a grid.

    >>> describe({"client_lr": -1.5, "tau": -3.0})
    'client_lr=-1.5 tau=-3'
    """
    return " ".join(
        f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"
        for axis, value in point.items()
    )


def edges(point: Point, grid: Grid) -> list[str]:
    """The axes on which a point lies at an end of the grid, where a better one may lie beyond.

    An axis of two values has nothing but ends: it shows which way is better and not how far. One of a
    single value was not tuned.
    """
    return [
        axis
        for axis, values in grid.items()
        if axis in LOG10_AXES and len(values) > 1 and point[axis] in (min(values), max(values))
    ]
