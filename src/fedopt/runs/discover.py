"""Find run directories: a run, a comparison, several seeds, a sweep, or a directory of these."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedopt.documents import parse_json, read_regular_file
from fedopt.errors import RunDirectoryError, UserError
from fedopt.runs.records import RunRecord, read_run

SWEEP = "sweep.json"  # describes a sweep, in its directory
_MARKERS = ("run.json", "metrics.jsonl")  # either identifies a run directory, even if the other is missing


class FoundRuns(NamedTuple):
    records: list[RunRecord]
    damaged: list[str]  # one message per damaged run, which is left out


def find_runs(paths: Sequence[Path]) -> FoundRuns:
    """Read all runs at or under `paths`, each once, in the order of the paths and sorted within each."""
    records, damaged, seen = [], [], set()
    for path in paths:
        directories = sorted(run_directories(path), key=_natural_order)
        if not directories:
            what = "holds no run directory" if path.is_dir() else "is not a directory"
            raise RunDirectoryError(
                f"{path} {what}; name one that `fedopt run`, `compare` or `sweep` has written", path=path
            )
        for directory in directories:
            if (real := directory.resolve()) in seen:
                continue
            seen.add(real)
            try:
                records.append(read_run(directory))
            except UserError as error:
                damaged.append(str(error))
    return FoundRuns(records, damaged)


def selection_of(records: Sequence[RunRecord]) -> str | None:
    """The selection metric of a sweep, if all `records` are trials of the same sweep."""
    files = {record.path.parent.parent / SWEEP for record in records}
    try:
        (file,) = files
        select = parse_json(read_regular_file(file))["select"]
    except (OSError, ValueError, KeyError, TypeError):  # several sweeps, none, or a damaged file
        return None
    return select if isinstance(select, str) else None


def run_directories(path: Path) -> Iterator[Path]:
    """Yield the run directories at or under `path`. Directories inside a run are not searched."""
    for name, inner, files in os.walk(path):
        if any(marker in files for marker in _MARKERS):
            inner.clear()
            yield Path(name)
        else:
            inner[:] = [directory for directory in inner if not directory.startswith(".")]


def _natural_order(path: Path) -> list[tuple[int, int, str]]:
    """A sort key that puts seed-2 before seed-10."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(part), "") if at % 2 else (1, 0, part) for at, part in enumerate(parts)]
