"""Restore run directories from stored results, so that another machine can continue a command.

A stored result contains configuration, status and metrics, but no checkpoints. Therefore only runs that have
ended are restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from claims.results import EntryResult
from fedopt.files import write_atomically
from fedopt.runs.records import RunRecord

ENDED = ("done", "diverged")


def restore_runs(result: EntryResult, directory: Path) -> int:
    """Write the ended runs of a result that `directory` does not contain. Return their number."""
    missing = [
        record
        for record in result.records
        if is_restorable(record) and not (directory / record.path / "config.toml").exists()
    ]
    for record in missing:
        _write_run(record, directory / record.path)
    return len(missing)


def is_restorable(record: RunRecord) -> bool:
    """Whether a run has ended and its record has all that a run directory needs.

    Results that were stored before 2026-11-18 have means of training lines and no version of fedopt.
    """
    rounds = [line["round"] for line in record.train]
    is_detailed = rounds == list(range(1, record.rounds + 1)) and "fedopt" in record.info["machine"]
    return record.status in ENDED and is_detailed


def _write_run(record: RunRecord, path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    info = dict(record.info)
    machines = [*info.pop("earlier_machines", ()), info.pop("machine")]
    info["segments"] = [{"after_round": 0, **machine} for machine in machines]
    info["message"] = "restored from a stored result; there is no checkpoint"
    lines = [{"split": "train", **_without_count(line)} for line in record.train]
    lines += [{"split": "test", **line} for line in record.test]
    lines.sort(key=lambda line: line["round"])
    write_atomically(path / "run.json", json.dumps(info, indent=2) + "\n")
    write_atomically(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    write_atomically(path / "config.toml", tomli_w.dumps(_nest(record.config)))  # last: it marks a run


def _without_count(line: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the number of rounds that a stored training line is the mean of. It is 1."""
    return {key: value for key, value in line.items() if key != "rounds"}


def _nest(config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert dotted keys to nested tables.

    >>> _nest({"seed": 0, "server.lr": 0.1})
    {'seed': 0, 'server': {'lr': 0.1}}
    """
    nested: dict[str, Any] = {}
    for key, value in config.items():
        *tables, name = key.split(".")
        table = nested
        for part in tables:
            table = table.setdefault(part, {})
        table[name] = value
    return nested
