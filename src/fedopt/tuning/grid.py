"""Grids of hyperparameters: reading, validation and points.

The learning rates and tau are given in log10 as `first:last:step`, as in the paper's grids:
`client_lr=-3:0.5:0.5, server_lr=-3:1:0.5, tau=-5:-1:1`. Any other configuration key can be an axis with plain
values: `client.epochs=1|5`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopt.algorithms import AlgorithmChoice, find_algorithm
from fedopt.documents import parse_toml, read_regular_file
from fedopt.errors import ConfigError, unknown
from fedopt.runs.records import flatten
from fedopt.runs.resolve import parse_settings, resolve
from fedopt.tasks import Task
from fedopt.tasks.base import LogRange

LOG10_AXES = {"client_lr": "client.lr", "server_lr": "server.lr", "tau": "server.tau"}
PLAIN_AXES = ("clients_per_round", "weighting", "sampling", "variant", "patience", "buffers")  # without a dot
MAX_AXIS_VALUES = 1000  # more values are probably a mistyped step
MAX_POINTS = 100_000
MAX_LOG10 = 38  # the range of float32

Value = float | int | str | bool
Grid = Mapping[str, tuple[Value, ...]]  # axis -> values, in log10 for LOG10_AXES
Point = Mapping[str, Value]  # axis -> value


def paper_grid(
    task: Task, algorithm: AlgorithmChoice, settings: Mapping[str, Any] | None = None
) -> dict[str, tuple[Value, ...]]:
    """Return the grid of a task, as in the paper for its tasks. Only algorithms with a tau get that axis."""
    known = task.settings
    if known is None:
        raise _error(
            f"the task {task.name} has no grid of its own; pass one as grid, for example "
            '"client_lr=-2:0:0.5, server_lr=-1:1:0.5" in log10'
        )
    ranges = {"client_lr": known.client_grid, "server_lr": known.server_grid, "tau": known.tau_grid}
    if algorithm == "centralized":
        del ranges["server_lr"]
    grid = {axis: log_range.values for axis, log_range in ranges.items()}
    return remove_unused_tau(grid, task, algorithm, settings)


def remove_unused_tau(
    grid: Grid, task: Task, algorithm: AlgorithmChoice, settings: Mapping[str, Any] | None = None
) -> dict[str, tuple[Value, ...]]:
    """Return the grid, without the tau axis if the algorithm with these settings has no tau."""
    find_algorithm(algorithm)
    if "tau" not in grid:
        return dict(grid)
    has_tau = "server.tau" in flatten(resolve(task, algorithm, settings or {}).document())
    return {axis: values for axis, values in grid.items() if axis != "tau" or has_tau}


def remove_foreign_axes(
    grid: Grid, task: Task, algorithm: AlgorithmChoice, others: Sequence[AlgorithmChoice]
) -> dict[str, tuple[Value, ...]]:
    """Return the grid without axes that are keys of one of the `others`, but not of this algorithm."""
    return {
        axis: values
        for axis, values in grid.items()
        if axis in LOG10_AXES
        or _has_key(task, algorithm, axis, values[0])
        or not any(_has_key(task, other, axis, values[0]) for other in others)
    }


def _has_key(task: Task, algorithm: AlgorithmChoice, key: str, value: Value) -> bool:
    try:
        resolve(task, algorithm, {key: value})
    except ConfigError as error:
        return key not in error.keys
    return True


def check_grid(grid: Grid, settings: Mapping[str, Any]) -> None:
    """Raise an error if a key has two sources of values, or if the grid is too large."""
    keys = [LOG10_AXES.get(axis, axis) for axis in grid]
    for axis, key in zip(grid, keys, strict=True):
        if keys.count(key) > 1:
            raise _error(f"the grid has two axes for {key}; leave one out", key)
        if key in settings:
            raise _error(f"{key} is a setting and the axis {axis} of the grid; leave one out", key)
    size = math.prod(map(len, grid.values()))
    if size > MAX_POINTS:
        raise _error(f"the grid has {size:,} points; allowed: up to {MAX_POINTS:,}; choose larger steps")


def read_grid(text: str) -> dict[str, tuple[Value, ...]]:
    """Read a grid from a TOML file, or from text such as `client_lr=-3:0.5:0.5, tau=-3`."""
    text = text.strip()
    if text.endswith(".toml") or _is_file(text):
        return _read_file(Path(text))
    if not text.strip(","):
        raise _error("the grid is empty; give axes, such as client_lr=-3:0:0.5, or paper")
    grid: dict[str, tuple[Value, ...]] = {}
    for part in re.split(r"[,\s]+(?=[\w.]+\s*=)", text.strip(", ")):
        axis, equals, values = (piece.strip() for piece in part.partition("="))
        if not equals or not axis or not values:
            raise _error(
                f"grid: {part!r} is neither a file nor of the form axis=first:last:step, such as "
                "client_lr=-3:0:0.5"
            )
        if axis in grid:
            raise _error(
                f"the grid has the axis {axis!r} twice; give all values together, such as {axis}=-2|-1", axis
            )
        grid[axis] = _parse_values(axis, values)
    return grid


def _error(message: str, key: str = "grid") -> ConfigError:
    return ConfigError(message, keys=[key])


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with invalid characters
        return False


def _read_file(file: Path) -> dict[str, tuple[Value, ...]]:
    try:
        document = parse_toml(read_regular_file(file))
    except OSError as error:
        raise _error(f"grid {file}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # invalid TOML, encoding or file name
        raise _error(f'grid {file}: {error}; write lines such as client_lr = "-3:0.5:0.5"') from error
    if not document:
        raise _error(f'grid {file} has no axis; write lines such as client_lr = "-3:0.5:0.5"')
    return check_axes(flatten(document))


def check_axes(axes: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    """Return a grid from a mapping of axes to values: a sequence, one value, or text such as "-3:0.5:0.5"."""
    grid = {}
    for axis, values in axes.items():
        if isinstance(values, str) and axis in LOG10_AXES:
            grid[axis] = _parse_values(axis, values)
        elif isinstance(values, str) or not isinstance(values, Iterable):
            grid[axis] = _check_values(axis, [values])
        else:
            grid[axis] = _check_values(axis, list(values))
    if not grid:
        raise _error("the grid is empty; give axes, such as client_lr")
    return grid


def _parse_values(axis: str, text: str) -> tuple[Value, ...]:
    """Parse a range such as `-3:0.5:0.5`, or values separated by bars such as `-2|-1`."""
    if axis not in LOG10_AXES:
        return _check_values(axis, [parse_settings([f"value={word}"])["value"] for word in text.split("|")])
    try:
        if ":" not in text:
            return _check_values(axis, [float(word) for word in text.split("|")])
        first, last, step = (float(word) for word in text.split(":"))
    except ValueError:
        raise _error(
            f"grid: {axis}={text} is neither first:last:step in log10, such as -3:0.5:0.5, nor values "
            "such as -2|-1",
            axis,
        ) from None
    if not all(map(math.isfinite, (first, last, step))) or step <= 0 or last < first:
        raise _error(
            f"grid: {axis}={text} has no values; first:last:step needs first <= last and a step above 0",
            axis,
        )
    if (last - first) / step >= MAX_AXIS_VALUES:
        raise _error(
            f"grid: {axis}={text} has more than {MAX_AXIS_VALUES} values; choose a larger step", axis
        )
    return _check_values(axis, LogRange(first, last, step).values)


def _check_values(axis: str, values: Sequence[Any]) -> tuple[Value, ...]:
    """Return the distinct values of an axis, or raise an error for an invalid axis or value."""
    if axis in ("rounds", "seed"):
        option = {"rounds": "rounds", "seed": "seeds"}[axis]
        raise _error(f"grid: {axis} cannot be an axis; use the option {option}", axis)
    if axis not in (*LOG10_AXES, *PLAIN_AXES) and "." not in axis:
        raise unknown(
            "axis of the grid", axis, [*LOG10_AXES, *PLAIN_AXES, "a dotted key such as client.epochs"]
        )
    if not values:
        raise _error(f"grid: {axis} has no values; give some, such as -2|-1, or remove the axis", axis)
    for value in values:
        if axis in LOG10_AXES and not _is_log10(value):
            allowed = f"a log10 from -{MAX_LOG10} to {MAX_LOG10}"
        elif not isinstance(value, float | int | str | bool):
            allowed = "numbers, booleans and strings"
        elif isinstance(value, float) and not math.isfinite(value):
            allowed = "finite numbers"
        else:
            continue
        raise _error(f"grid: {axis} has the value {value!r}; allowed: {allowed}", axis)
    return tuple(dict.fromkeys(float(v) + 0.0 if axis in LOG10_AXES else v for v in values))


def _is_log10(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= MAX_LOG10


def grid_points(grid: Grid) -> Iterator[dict[str, Value]]:
    """Yield all combinations of values. The last axis changes fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def point_settings(point: Point) -> dict[str, Any]:
    """Return the configuration values of a point.

    >>> point_settings({"client_lr": -2.0, "client.epochs": 5})
    {'client.lr': 0.01, 'client.epochs': 5}
    """
    return {
        LOG10_AXES.get(axis, axis): 10.0 ** float(value) if axis in LOG10_AXES else value
        for axis, value in point.items()
    }


def describe_point(point: Point) -> str:
    """Return a point as text, in the notation of grids.

    >>> describe_point({"client_lr": -1.5, "tau": -3.0})
    'client_lr=-1.5 tau=-3'
    """
    return " ".join(
        f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"
        for axis, value in point.items()
    )


def edge_axes(point: Point, grid: Grid) -> list[str]:
    """Return the log10 axes on which a point is the smallest or largest value of the grid.

    A better point may lie outside the grid there. An axis with a single value was not tuned and is omitted.
    """
    return [
        axis
        for axis, values in grid.items()
        if axis in LOG10_AXES and len(values) > 1 and point[axis] in (min(values), max(values))
    ]
