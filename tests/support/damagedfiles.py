"""Damage the files of `publicfiles`. Each function returns a maker: directory -> path to import."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import publicfiles as files

Make = Callable[[Path], Path]


def change_hdf5(split: str, client: str, field: str, value: Any) -> Make:
    """Replace one field of a client, or delete it if `value` is None."""

    def make(d: Path) -> Path:
        files.write_hdf5(d, "fed_emnist", files.emnist())
        with h5py.File(d / f"fed_emnist_{split}.h5", "r+") as file:
            del file[f"examples/{client}/{field}"]
            if value is not None:
                file[f"examples/{client}/{field}"] = value
        return d

    return make


def truncate(make: Make, name: str, share: float) -> Make:
    """Keep only the first `share` of a file."""

    def truncated(d: Path) -> Path:
        path = make(d)
        target = d / name
        target.write_bytes(target.read_bytes()[: int(target.stat().st_size * share)])
        return path

    return truncated


def scramble(make: Make, name: str) -> Make:
    """Overwrite the middle third of a file."""

    def scrambled(d: Path) -> Path:
        path = make(d)
        data = bytearray((d / name).read_bytes())
        data[len(data) // 3 : len(data) * 2 // 3] = b"\xa5" * (len(data) * 2 // 3 - len(data) // 3)
        (d / name).write_bytes(data)
        return path

    return scrambled


def run_sql(statement: str, *values: Any) -> Make:
    """Execute a statement on an SQLite file."""

    def make(d: Path) -> Path:
        path = files.sqlite_all(d)
        with sqlite3.connect(path) as db:
            db.execute(statement, values)
        db.close()
        return path

    return make


def edit_json(edit: Callable[[dict[str, Any]], Any]) -> Make:
    """Change the content of a LEAF file."""

    def make(d: Path) -> Path:
        files.leaf_directory(d)
        path = next((d / "train").iterdir())
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
        return d

    return make


def replace_bytes(old: bytes, new: bytes) -> Make:
    """Replace the first occurrence of `old` in a LEAF file."""

    def make(d: Path) -> Path:
        files.leaf_directory(d)
        path = next((d / "train").iterdir())
        path.write_bytes(path.read_bytes().replace(old, new, 1))
        return d

    return make
