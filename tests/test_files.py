"""Atomic files and the file lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import lock_directory, locked, write_atomically


def test_file_is_replaced_without_leftovers(tmp_path: Path) -> None:
    for content in (b"old", "new"):
        write_atomically(tmp_path / "file", content)
    assert (tmp_path / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_write_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(DiskError) as caught:
        write_atomically(tmp_path / "missing" / "file", b"x")
    assert caught.value.path == tmp_path / "missing" / "file"


def test_second_lock_of_a_directory_is_rejected(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path / "run", "sweep")
    with pytest.raises(RunDirectoryError, match="another sweep") as caught:
        lock_directory(tmp_path / "run", "sweep")
    assert caught.value.path == tmp_path / "run"
    os.close(lock)
    os.close(lock_directory(tmp_path / "run", "sweep"))


def test_path_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunDirectoryError) as caught:
        lock_directory(tmp_path / "run", "sweep")
    assert caught.value.path == tmp_path / "run"


def test_second_process_waits_for_the_lock(tmp_path: Path) -> None:
    target = tmp_path / "store"
    code = f"""
from pathlib import Path
from fedopt.files import locked
with locked(Path({str(target)!r}), lambda message: print("waiting", flush=True)):
    print("locked", flush=True)
"""
    with locked(target):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    assert process.communicate()[0] == "locked\n"
    assert list(tmp_path.iterdir()) == []
