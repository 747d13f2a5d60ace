"""The names of the files in a run directory at a URL. Other files there are not read, replaced or deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fedopt.runs import lease, model_file
from fedopt.runs.discover import SWEEP

_POSITION = "position.json"  # the last file of a checkpoint
# Files that an interrupted first upload may leave without config.toml.
_FIRST = ("run.json", "metrics.jsonl", "data.json", model_file.NAME)
_CHECKPOINT = rf"checkpoints/\d+/(?:state\.safetensors|clients\.json|{re.escape(_POSITION)})"
_ROW = r"clients/\d+-\d+\.safetensors"
_EVENTS = r"tensorboard/events\.[\w.]+"
_NAMES = [re.escape(name) for name in ("config.toml", lease.NAME, *_FIRST)]
_RUN_FILE = re.compile(rf"(?P<parents>(?:.+/)?)(?:{'|'.join([*_NAMES, _CHECKPOINT, _ROW, _EVENTS])})")
_TEMPORARY = re.compile(rf"{_CHECKPOINT}|{_ROW}")
LAST_UPLOAD = 5


def select_run_files(names: Iterable[str]) -> list[str]:
    """Return the names that are files of a run at the URL itself."""
    return [name for name in names if (match := _RUN_FILE.fullmatch(name)) and not match["parents"]]


def select_readable(names: Iterable[str]) -> list[str]:
    """Return the files of the runs at or below the URL, and of sweeps; none if there is no run.

    A checkpoint whose last file is missing is left out, because its upload was interrupted.
    """
    names = list(names)
    found = [(name, match["parents"]) for name in names if (match := _RUN_FILE.fullmatch(name))]
    runs = {parents for name, parents in found if name == f"{parents}config.toml"}
    sweeps = [name for name in names if runs and name.rpartition("/")[2] == SWEEP]
    return sweeps + select_complete(name for name, parents in found if parents in runs)


def select_complete(names: Iterable[str]) -> list[str]:
    """Leave out checkpoints whose last file is missing, because their upload was interrupted."""
    names = list(names)
    directories = {name.removesuffix(_POSITION) for name in names if name.endswith(f"/{_POSITION}")}
    return [
        name
        for name in names
        if "checkpoints" not in name.split("/")[-3:-1] or name.rpartition("/")[0] + "/" in directories
    ]


def find_foreign(entries: Iterable[str]) -> str | None:
    """Return an entry that shows that the URL holds something else than a run or the start of a run."""
    entries = sorted(entries)
    if "config.toml" in entries:
        return None
    return next((name for name in entries if name not in (*_FIRST, lease.NAME)), None)


def is_temporary(name: str) -> bool:
    """Whether a run deletes this file when it is no longer needed: old checkpoints and client state."""
    return _TEMPORARY.fullmatch(name) is not None


def upload_step(name: str) -> int:
    """The position of a file in the order of uploads.

    metrics.jsonl may be ahead of a checkpoint, but not behind. A checkpoint is complete with its last file.
    A directory is a run as soon as it has config.toml.
    """
    if name.startswith("checkpoints/"):
        return 3 if name.endswith(f"/{_POSITION}") else 2
    return {"metrics.jsonl": 1, "run.json": 4, "config.toml": LAST_UPLOAD}.get(name, 0)


def checkpoint_rounds(names: Iterable[str]) -> list[int]:
    """Return the rounds of the checkpoints of a run."""
    parts = [name.split("/") for name in names]
    return [int(part[1]) for part in parts if part[0] == "checkpoints" and part[1].isdecimal()]
