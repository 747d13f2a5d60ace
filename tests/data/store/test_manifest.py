"""Manifests with wrong types or unsafe names are rejected in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from smallstores import write_small_store

from fedopt.data.store import open_store
from fedopt.errors import DataError

Edit = Callable[[dict[str, Any]], Any]
EDITS: dict[str, Edit] = {
    "splits is a list": lambda m: m.update(splits=[]),
    "files is a number": lambda m: m.update(files=3),
    "size is a text": lambda m: m["files"].update({"train/ids.values.npy": "9"}),
    "size is negative": lambda m: m["files"].update({"train/ids.values.npy": -1}),
    "size is larger than any file": lambda m: m["files"].update({"train/ids.values.npy": 10**4000}),
    "split has no clients": lambda m: m["splits"]["train"].update(clients=0),
    "clients is a float": lambda m: m["splits"]["train"].update(clients=1.5),
    "columns is null": lambda m: m["splits"]["train"].update(columns=None),
    "column leaves the directory": lambda m: m["splits"]["train"]["columns"].update(
        {"../../secret": {"dtype": "<i8", "shape": []}}
    ),
    "split leaves the directory": lambda m: m["splits"].update({"..": m["splits"]["train"]}),
    "dtype is an object": lambda m: m["splits"]["train"]["columns"].update(x={"dtype": "|O", "shape": []}),
    "name is missing": lambda m: m.pop("name"),
    "notes is a text": lambda m: m.update(notes="none"),
    "source is a number": lambda m: m.update(source=[1]),
    "format is a text": lambda m: m.update(format="one"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_small_store(tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_wrong_type_is_rejected(store: Path, edit: Edit) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    edit(manifest)
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="is damaged: it is not the manifest") as caught:
        open_store(store)
    assert caught.value.path == store / "manifest.json" and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "\xff", "9" * 5000, "null", ""])
def test_content_that_is_not_a_manifest_is_rejected(store: Path, text: str) -> None:
    (store / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match="is damaged") as caught:
        open_store(store)
    assert caught.value.path == store / "manifest.json" and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["manifest.json", "train/ids.values.npy"])
def test_named_pipe_is_rejected_without_waiting(store: Path, name: str) -> None:
    (store / name).unlink()
    os.mkfifo(store / name)
    with pytest.raises(DataError, match="not a regular file") as caught:
        open_store(store)
    assert caught.value.path == store / name


def test_file_without_permission_is_not_called_damaged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may read every file, so the error of the operating system is simulated."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match="Permission denied; check its permissions") as caught:
        open_store(store)
    assert caught.value.path == store / "manifest.json" and "damaged" not in str(caught.value)
