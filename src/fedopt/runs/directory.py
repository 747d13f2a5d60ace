"""A run directory: it explains itself and can always be continued.

config.toml     the resolved configuration        metrics.jsonl   one object a line
run.json        version, command, status, result  checkpoints/    the last few
clients/        what clients keep, for algorithms with client state
tensorboard/    event files, where they were asked for
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from fedopt.algorithms import State
from fedopt.engine.client_state import ClientMemory, MemoryTable
from fedopt.errors import RunDirectoryError, UserError
from fedopt.files import disk_errors, lock_directory, write_atomically
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs.checkpoint import Checkpoint
from fedopt.runs.client_table import DiskTable, check_disk
from fedopt.runs.config import Config, read_config
from fedopt.runs.records import flatten, read_run

# entries of run.json that a run writes when it ends, whichever way
OUTCOME = "message rounds_done train_loss value params x_sha256 seconds full_test".split()


class RunDirectory:
    """One run's files, locked for this process."""

    def __init__(self, path: Path, config: Config, info: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        check_directory(path, "run directory", "config.toml", ("run.json", "metrics.jsonl"))
        self._lock = lock_directory(path, "fedopt process")
        try:
            self._adopt(info)
        except BaseException:
            self.close()
            raise
        self._table: DiskTable | None = None
        self._metrics: IO[bytes] | None = None

    def _adopt(self, info: dict[str, Any]) -> None:
        config_file = self.path / "config.toml"
        if config_file.exists():
            old = read_config(config_file)
            _same_run(self.path, old, self.config)
            self.info: dict[str, Any] = read_run(self.path).info
            missing = [key for key in info if key not in self.info]
            if missing:
                raise UserError(
                    f"{self.path / 'run.json'} is damaged: it has no {missing[0]!r}; restore it or choose "
                    "another --out"
                )
            if self.config.rounds > old.rounds:
                write_atomically(config_file, self.config.toml())
        else:
            self.info = info
            self.update()
            (self.path / "metrics.jsonl").touch()
            write_atomically(config_file, self.config.toml())  # last: with it, this is a run directory

    @property
    def done(self) -> bool:
        """Whether as many rounds as asked for have been run to the end."""
        return bool(self.info["status"] == "done" and self.info["rounds"] >= self.config.rounds)

    def update(self, **changes: Any) -> None:
        """Change entries of run.json; None removes one."""
        merged = {**self.info, **changes}
        self.info = {key: value for key, value in merged.items() if value is not None}
        _write_info(self.path, self.info)

    def restart(self, rounds: int, command: str) -> None:
        """Running again: how an earlier execution ended no longer holds."""
        self.update(status="running", rounds=rounds, command=command, **dict.fromkeys(OUTCOME))

    def restore(self, like: State) -> tuple[Checkpoint | None, list[str]]:
        """The newest readable checkpoint, if any, with metrics and rows cut back to it, and what to tell."""
        notes: list[str] = []
        found: Checkpoint | None = None
        directory = self.path / "checkpoints"
        available = checkpoints.rounds(directory)
        for round in reversed(available):
            try:
                found = checkpoints.read(directory, round, like)
                break
            except UserError as error:
                notes.append(f"{error}; going back to the one before")
        if available and found is None:
            raise UserError(
                f"{notes[-1].split(';')[0]} and there is no other; remove {self.path} to start again"
            )
        self._cut_metrics(found.metrics_bytes if found else 0)
        return found, notes

    def _cut_metrics(self, length: int) -> None:
        file = self.path / "metrics.jsonl"
        with disk_errors(file):
            self._metrics = open(file, "r+b" if file.exists() else "w+b")
            size = self._metrics.seek(0, os.SEEK_END)
            if size < length:
                raise UserError(
                    f"{file} is shorter ({size} bytes) than its checkpoint says ({length}); restore it, or "
                    f"remove {self.path} to start again"
                )
            if size > length:  # from here on it is a run that has not ended
                self.update(status="running")
            self._metrics.truncate(length)
            self._metrics.seek(length)
        read_run(self.path)  # what is left must be readable

    def client_table(self, keeps: tuple[str, ...], d: int, population: int, round: int) -> ClientMemory:
        """Where clients' state lives; on disk if the algorithm has any."""
        if not keeps:
            return MemoryTable()
        if round < self.config.rounds:
            check_disk(self.path, self.config, d, len(keeps), population)
        self._table = DiskTable(self.path / "clients", keeps, round)
        return self._table

    def lines(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl so far."""
        record = read_run(self.path)
        return [*record.train, *record.test]

    def log(self, record: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        assert self._metrics is not None
        with disk_errors(self.path / "metrics.jsonl"):
            self._metrics.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            self._metrics.flush()

    def commit(self, position: Any, seconds: float) -> None:
        """Write a checkpoint; from here on a resumed run starts at this round."""
        assert self._metrics is not None
        os.fsync(self._metrics.fileno())
        if self._table:
            self._table.sync()
        directory = self.path / "checkpoints"
        checkpoint = Checkpoint(position, self._metrics.tell(), seconds)
        checkpoints.write(directory, checkpoint, self.config.checkpoint.keep)
        if self._table:
            self._table.prune(checkpoints.rounds(directory)[0])

    def close(self) -> None:
        if getattr(self, "_metrics", None) is not None:
            self._metrics.close()  # type: ignore[union-attr]
        os.close(self._lock)


def mark_pruned(path: Path, rounds_done: int, train_loss: float | None) -> None:
    """Record that a search stopped a run whose process ended before it could record this itself."""
    info = read_run(path).info
    if info.get("status") not in ("running", "failed"):
        return
    info |= {"status": "pruned", "message": f"stopped after round {rounds_done}", "rounds_done": rounds_done}
    if train_loss is not None:
        info["train_loss"] = train_loss
    _write_info(path, info)


def remove_checkpoints(path: Path) -> None:
    """Delete the checkpoints and the client state of a run; its numbers stay.

    A run without checkpoints starts from round 0 if it is extended. Each directory is renamed before it is
    deleted, so that an interruption never leaves an incomplete one. Client state goes last because
    checkpoints refer to it.
    """
    for name in ("checkpoints", "clients"):
        trash = path / f".{name}.removed"
        try:
            shutil.rmtree(trash, ignore_errors=True)
            os.rename(path / name, trash)
        except FileNotFoundError:
            continue
        except OSError:
            return
        shutil.rmtree(trash, ignore_errors=True)


def remove_temporary_files(path: Path, pid: int) -> None:
    """Delete the unfinished files that a killed process left in a run directory."""
    for temporary in path.rglob(f".*.{pid}.tmp"):
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def check_directory(path: Path, kind: str, marker: str, leftovers: Collection[str] = ()) -> bool:
    """Refuse a directory with foreign files. Return whether it already holds a `kind`.

    `marker` is the file that identifies a `kind`, such as "sweep.json" for a sweep. `leftovers` are entries
    that an interrupted start may leave without the marker.
    """
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file, not a directory; choose another --out", path=path)
    if not path.is_dir():
        return False
    if (path / marker).exists():
        return True
    names = sorted(entry.name for entry in path.iterdir())
    foreign = [name for name in names if not name.startswith(".") and name not in leftovers]
    if foreign:
        raise RunDirectoryError(
            f"{path} is not empty and not a {kind} (it has {foreign[0]!r}); choose another --out", path=path
        )
    return False


def _write_info(path: Path, info: Mapping[str, Any]) -> None:
    write_atomically(path / "run.json", json.dumps(info, indent=2) + "\n")


def _same_run(path: Path, old: Config, new: Config) -> None:
    """Refuse to continue a run with another configuration; only `rounds` may change."""
    before, after = flatten(old.identity()), flatten(new.identity())
    different = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if different:
        key = different[0]
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        raise UserError(
            f"{path} holds a run of another configuration: {key} is {before.get(key)!r} there and "
            f"{after.get(key)!r} here{more}; choose another --out"
        )
