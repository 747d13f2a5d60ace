"""Run directories under any path: a run, a comparison, several seeds, a sweep.

One damaged run among many is named and left out, so that the others can still be looked at.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedopt.errors import UserError
from fedopt.runs.records import RunRecord, read_run

SWEEP = "sweep.json"  # what a sweep was asked for, in its directory
MARKS = ("run.json", "metrics.jsonl")  # either makes a directory a run, even one that has lost the other


class Found(NamedTuple):
    records: list[RunRecord]
    damaged: list[str]  # a line each, with the directory and what is wrong


def find_runs(paths: Sequence[Path]) -> Found:
    """The runs at or under `paths`, each once, in the order of the paths and sorted within each."""
    found, seen = Found([], []), set()
    for path in paths:
        directories = sorted(run_directories(path), key=_by_number)
        if not directories:
            what = "holds no run directory" if path.is_dir() else "is not a directory"
            raise UserError(f"{path} {what}; name one that `fedopt run`, `compare` or `sweep` has written")
        for directory in directories:
            if (real := directory.resolve()) in seen:
                continue
            seen.add(real)
            try:
                found.records.append(read_run(directory))
            except UserError as error:
                found.damaged.append(str(error))
    return found


def selection_of(records: Sequence[RunRecord]) -> str | None:
    """What a sweep selected by, if `records` are trials of one; its directory says so."""
    plans = {record.path.parent.parent / SWEEP for record in records}
    try:
        (plan,) = plans
        select = json.loads(plan.read_bytes())["select"]
    except (OSError, ValueError, KeyError, TypeError):  # several, none, or damaged: a report can do without
        return None
    return select if isinstance(select, str) else None


def run_directories(path: Path) -> Iterator[Path]:
    """The run directories at or under `path`; what lies inside one is its own business."""
    for name, inner, files in os.walk(path):
        if any(mark in files for mark in MARKS):
            inner.clear()
            yield Path(name)
        else:
            inner[:] = [directory for directory in inner if not directory.startswith(".")]


def _by_number(path: Path) -> list[tuple[int, int, str]]:
    """Sorts seed-2 before seed-10."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(part), "") if at % 2 else (1, 0, part) for at, part in enumerate(parts)]
