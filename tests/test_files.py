"""Atomic files and the file lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import lock_directory, locked, temporary_directory, temporary_path, write_atomically


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


def test_symbolic_link_at_a_temporary_name_is_not_followed(tmp_path: Path) -> None:
    """Another user creates links at all names that depend only on the process."""
    victim = tmp_path / "victim"
    victim.write_text("private")
    directory = tmp_path / "shared"
    directory.mkdir()
    for name in (f".report.html.{os.getpid()}.tmp", ".report.html.tmp", "report.html"):
        (directory / name).symlink_to(victim)
    write_atomically(directory / "report.html", "page")
    assert victim.read_text() == "private"
    assert (directory / "report.html").read_text() == "page" and not (directory / "report.html").is_symlink()


def test_temporary_names_are_random(tmp_path: Path) -> None:
    names = {temporary_path(tmp_path / "report.html") for _ in range(100)}
    assert len(names) == 100 and {path.parent for path in names} == {tmp_path}


@pytest.mark.parametrize("lock", [".run.lock", "run/.lock"])
def test_lock_file_that_is_a_symbolic_link_is_rejected(lock: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / lock).symlink_to(tmp_path / "created")
    with pytest.raises((DiskError, RunDirectoryError)) as caught:
        if lock == ".run.lock":
            with locked(tmp_path / "run"):
                pass
        else:
            lock_directory(tmp_path / "run", "sweep")
    assert caught.value.path == tmp_path / "run"
    assert not (tmp_path / "created").exists()


def test_directories_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    target, victim = tmp_path / "store", tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("private")
    for leftover in (".store.importing-1", ".store.replaced-1"):
        (tmp_path / leftover / "deep").mkdir(parents=True)
    (tmp_path / ".store.importing-2").symlink_to(victim)
    target.mkdir()
    with temporary_directory(target) as scratch:
        assert scratch.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".store.importing-2", "store", "victim"]
    assert (victim / "file").read_text() == "private"


def test_replacement_interrupted_between_the_renames_is_undone(tmp_path: Path) -> None:
    (tmp_path / ".store.replaced-1").mkdir()
    (tmp_path / ".store.replaced-1" / "file").write_text("old")
    with temporary_directory(tmp_path / "store"):
        assert (tmp_path / "store" / "file").read_text() == "old"


def test_directory_is_removed_although_an_interrupt_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM arrives while an import that has failed removes its files."""
    removed = os.unlink

    def interrupted(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "unlink", removed)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), temporary_directory(tmp_path / "store") as scratch:
        for name in ("a", "b"):
            (scratch / name).write_text("")
        monkeypatch.setattr(os, "unlink", interrupted)
    assert list(tmp_path.iterdir()) == []
