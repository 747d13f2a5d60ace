"""The command that makes a run again, as one could have typed it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopt.runs.config import parse_settings

_OPTIONS = ("rounds", "seed")  # settings that have an option of their own


def run_command(
    task: str,
    algorithm: str,
    settings: Mapping[str, Any],
    data: str,
    out: Path,
    options: Sequence[str] = (),
) -> str:
    """The `fedopt run` of one of several runs.

    >>> run_command("so_lr", "fedavg", {"rounds": 5, "client.lr": 10.0}, "synthetic", Path("my runs"))
    "fedopt run so_lr --algorithm fedavg --rounds 5 --set client.lr=10.0 --out 'my runs'"
    """
    words = ["fedopt", "run", task, "--algorithm", algorithm]
    for key, value in settings.items():
        words += [f"--{key}", _written(value)] if key in _OPTIONS else ["--set", f"{key}={_written(value)}"]
    words += [] if data == "synthetic" else ["--data", data]
    return shlex.join([*words, *options, "--out", str(out)])


def _written(value: object) -> str:
    """A setting as `--set` reads it; a string that reads as something else is quoted.

    >>> _written(True), _written(0.1), _written("as_run"), _written("10")
    ('true', '0.1', 'as_run', '"10"')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    same = not isinstance(value, str) or parse_settings([f"key={text}"])["key"] == value
    return text if same else json.dumps(value)
