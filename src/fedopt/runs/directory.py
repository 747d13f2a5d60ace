"""The run directory. Only this module writes or deletes files of a run.

config.toml     the resolved configuration        metrics.jsonl   one JSON object per line
run.json        version, command, status, result  checkpoints/    the newest ones
data.json       sizes and labels of the training clients
model.safetensors   frozen parameters and buffers, if the model has any
clients/        the state that clients keep between rounds, if the algorithm has any
tensorboard/    event files, if requested
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedopt.algorithms import State
from fedopt.documents import parse_toml, read_regular_file, seal
from fedopt.engine.client_state import ClientMemory, MemoryTable
from fedopt.engine.loop import Position
from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import check_directory, lock_directory, write_atomically
from fedopt.models.fixed_state import FixedState
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs import model_file
from fedopt.runs.checkpoint import Checkpoint, CheckpointDamage
from fedopt.runs.client_table import DiskTable, RowChecksums, check_disk
from fedopt.runs.config import Config, read_config
from fedopt.runs.fingerprint import Fingerprint, check_fingerprint
from fedopt.runs.metrics_file import MetricsFile
from fedopt.runs.records import config_changes, flatten, read_run
from fedopt.runs.segments import add_segment, describe_change, new_segment
from fedopt.runs.space_reserve import SpaceReserve

# Entries of run.json that describe how a run ended.
OUTCOME = (
    "message rounds_done train_loss last value params x_sha256 seconds rejected full_test fallback_reason"
).split()


class RunDirectory:
    """The files of one run, locked for this process."""

    def __init__(
        self,
        path: Path,
        config: Config,
        info: dict[str, Any],
        fixed: FixedState,
        fingerprint: Fingerprint,
        on_write: Callable[[], None] = lambda: None,
        url: str | None = None,
    ) -> None:
        """Create the run, or open it if it is the same run. `info` is run.json of a new run.

        `fixed` and `fingerprint` describe the model and the user-defined parts of a new run. `on_write` is
        called when the run is open, after a checkpoint and after a change of run.json. `url` is set if `path`
        is a local copy.
        """
        self.path = path
        self.url = url
        self.config = config
        self.fixed = fixed  # of this run; an existing run has its own
        self._table: DiskTable | None = None
        self._metrics: MetricsFile | None = None
        self._rows: RowChecksums | None = None  # that the restored checkpoint lists
        self._reserve = SpaceReserve(path)
        self._edited: list[str] = []  # keys of config.toml that somebody has changed
        self._config_sha256 = ""  # of its identity
        self._recorded_rounds = 0  # in metrics.jsonl
        self._first_round = 0  # of this process
        self._on_write: Callable[[], None] = lambda: None  # not before the directory is complete
        check_directory(
            path, "run directory", "config.toml", ("run.json", "metrics.jsonl", "data.json", model_file.NAME)
        )
        self._lock = lock_directory(path, "fedopt process")
        try:
            _check_links(path)
            remove_temporary_files(path)
            self._open(info, fingerprint)
            self._on_write = on_write
            on_write()
        except BaseException:
            self.close()
            raise

    def _open(self, info: dict[str, Any], fingerprint: Fingerprint) -> None:
        config_file = self.path / "config.toml"
        if config_file.exists():
            existing = read_config(config_file)
            _check_same_run(self.path, existing, self.config)
            record = read_run(self.path)
            self.info: dict[str, Any] = record.info
            self._recorded_rounds = record.rounds
            if "config" in self.info:
                self._edited = config_changes(self.info, parse_toml(read_regular_file(config_file)))
            missing = [key for key in info if key not in self.info]
            if missing:
                raise RunDirectoryError(
                    f"{self.path / 'run.json'} is damaged: it has no {missing[0]!r}; restore it or choose "
                    "another directory",
                    path=self.path,
                )
            self._check_rounds()
            check_fingerprint(self.path, self.info.get("fingerprint", {}), fingerprint)
            self._open_model()
            stops_differ = (existing.stop.patience or self.config.stop.patience) and (
                existing.stop != self.config.stop
            )
            evaluations_differ = existing.eval != self.config.eval and self.info["status"] != "done"
            if self.config.rounds > existing.rounds or stops_differ or evaluations_differ:
                rounds = max(self.config.rounds, existing.rounds)
                text = self.config.model_copy(update={"rounds": rounds}).toml()
                self.update(config=None)
                write_atomically(config_file, text)
                self.update(config=parse_toml(text))
        else:
            text = self.config.toml()
            self.info = {**info, "config": parse_toml(text), "fingerprint": fingerprint or None}
            self.update()
            self._write_model()
            (self.path / "metrics.jsonl").touch()
            # The last file: check_directory recognises a run directory by it.
            write_atomically(config_file, text)
        self._config_sha256 = read_config(config_file).short_hash(64)

    def _check_rounds(self) -> None:
        """Refuse to shorten a run: its metrics and checkpoints belong to the longer one."""
        is_done = self.info["status"] == "done"
        done = [int(self.info["rounds"])] if is_done else []
        recorded = max(done + checkpoints.rounds(self.path / "checkpoints"), default=0)
        if recorded > self.config.rounds:
            raise RunDirectoryError(
                f"{self.path} has {recorded} rounds, more than the {self.config.rounds} requested; request "
                f"at least {recorded}, or choose another run directory",
                path=self.path,
            )

    def _open_model(self) -> None:
        """Use the frozen parameters and buffers of the run. Runs of older versions have no file."""
        stored = model_file.read(self.path)
        if stored is not None:
            self.fixed = stored
            return
        recorded = self.info.get("fingerprint", {}).get("fixed")
        if recorded and checkpoints.rounds(self.path / "checkpoints"):
            file = self.path / model_file.NAME
            raise RunDirectoryError(
                f"{file} is missing, and the checkpoints need it; restore it, or remove {self.path} to start "
                "again",
                path=self.path,
            )
        self._write_model()

    def _write_model(self) -> None:
        if self.fixed.nbytes:
            model_file.write(self.path, self.fixed)

    @property
    def done(self) -> bool:
        """Whether all rounds of the configuration are finished."""
        return bool(self.info["status"] == "done" and self.info["rounds"] >= self.config.rounds)

    def update(self, **changes: Any) -> None:
        """Change entries of run.json; None removes an entry."""
        if self._metrics is not None:
            changes["metrics"] = {"bytes": self._metrics.length, "sha256": self._metrics.sha256}
        merged = {**self.info, **changes}
        self.info = {key: value for key, value in merged.items() if value is not None}
        try:
            self._write()
        except DiskError:
            if not self._reserve.release():
                raise
            self._write()
        self._on_write()

    def _write(self) -> None:
        """Write run.json. The metrics whose checksum it has are on disk before."""
        if self._metrics is not None:
            self._metrics.sync()
        _write_info(self.path, self.info)

    def restart(self, rounds: int, command: str) -> None:
        """Set the status to running and remove the outcome of an earlier execution."""
        segments = add_segment(self.info.get("segments", []), new_segment(self._first_round))
        changes = {"status": "running", "rounds": rounds, "command": command, "segments": segments}
        changes["config"] = parse_toml(read_regular_file(self.path / "config.toml"))
        self.update(**changes | dict.fromkeys(OUTCOME))
        self._reserve.allocate()

    def record_clients(self, summarize: Callable[[], Mapping[str, Any]]) -> None:
        """Write data.json, unless the run has it already."""
        file = self.path / "data.json"
        if not file.exists():
            write_atomically(file, json.dumps(seal(summarize()), allow_nan=False) + "\n")

    def restore(self, like: State) -> tuple[Checkpoint | None, list[str]]:
        """Read the newest intact checkpoint and truncate metrics.jsonl to it.

        `like` is a state of the right structure. Return the checkpoint, if any, and warnings: about damaged
        checkpoints, about rounds that are run again because there is none, and about other versions.
        """
        warnings: list[str] = []
        directory = self.path / "checkpoints"
        restored: Checkpoint | None = None
        for round in reversed(checkpoints.rounds(directory)):
            try:
                restored = checkpoints.read(directory, round, like)
                break
            except CheckpointDamage as error:
                warnings.append(f"{error}; using the previous one")
        if warnings and restored is None:
            damage = warnings[-1].split(";")[0]
            raise RunDirectoryError(
                f"{damage} and there is no other; remove {self.path} to start again", path=self.path
            )
        length, sha256 = (restored.metrics_bytes, restored.metrics_sha256) if restored else (0, None)
        self._metrics = MetricsFile(self.path, length, sha256)
        if self._metrics.has_more:  # rounds after the checkpoint are run again
            checkpoints.remove_later(directory, restored.position.round if restored else 0)
            self.update(status="running")
            self._metrics.truncate()  # last, so that a killed process leaves files that belong together
        if self._edited:
            keys = ", ".join(self._edited)
            warnings.append(f"{self.path / 'config.toml'} was changed after the run was started: {keys}")
        if restored is not None:
            checkpoints.check_config(self.path, restored.config_sha256, self._config_sha256)
            self._first_round, self._rows = restored.position.round, restored.rows
        elif self._recorded_rounds:
            warnings.append(
                f"{self.path} records {self._recorded_rounds} rounds but has no checkpoint; starting again "
                "from round 0"
            )
        change = describe_change(self.info)
        if restored is not None and change and not self.done:
            warnings.append(
                f"{self.path} was written with {change}; its remaining rounds may differ from those of an "
                "uninterrupted run"
            )
        return restored, warnings

    def client_table(self, keeps: tuple[str, ...], d: int, population: int, round: int) -> ClientMemory:
        """Storage for the state that clients keep; on disk if the algorithm has any."""
        if not keeps:
            return MemoryTable()
        if round < self.config.rounds:
            check_disk(self.path, self.config, d, len(keeps), population)
        self._table = DiskTable(self.path / "clients", keeps, round, self._rows)
        return self._table

    def read_metrics(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Read the train lines and the test lines of metrics.jsonl."""
        record = read_run(self.path)
        return record.train, record.test

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        assert self._metrics is not None
        self._metrics.append(line)

    def check_files(self) -> None:
        """Raise an error if another program has replaced files that this process writes."""
        assert self._metrics is not None
        self._metrics.check()
        _check_links(self.path, DiskError)

    def commit(self, position: Position, seconds: float) -> None:
        """Write a checkpoint. A resumed run starts after its round."""
        assert self._metrics is not None
        self.check_files()
        self.fixed.check()  # a resumed run would start from other values
        metrics = self._metrics
        metrics.sync()
        if self._table:
            self._table.sync()
        rows = self._table.checksums(position.round) if self._table else {}
        checkpoint = Checkpoint(position, metrics.length, seconds, rows, metrics.sha256, self._config_sha256)
        directory = self.path / "checkpoints"
        checkpoints.write(directory, checkpoint, self.config.checkpoint.keep)
        if self._table:
            self._table.prune(checkpoints.rounds(directory)[0])
        self._on_write()

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._reserve.release()
        os.close(self._lock)


def mark_pruned(path: Path, rounds_done: int, train_loss: float | None) -> None:
    """Record that a search stopped a run whose process ended before it could record this itself."""
    info = read_run(path).info
    if info.get("status") not in ("running", "killed", "failed", "interrupted"):
        return
    info |= {"status": "pruned", "message": f"stopped after round {rounds_done}", "rounds_done": rounds_done}
    if train_loss is not None:
        info["train_loss"] = train_loss
    _write_info(path, info)


def remove_checkpoints(path: Path) -> None:
    """Delete the checkpoints, the frozen tensors and the client state of a run; its numbers stay.

    A run without checkpoints starts from round 0 if it is extended.

    Args:
        path: the run directory.

    Returns:
        None.

    Examples:
        >>> remove_checkpoints(Path("nowhere"))
    """
    # Each directory is renamed before it is deleted, so that an interruption never leaves an incomplete one.
    # Client state goes last because checkpoints refer to it.
    for name in ("checkpoints", "clients", model_file.NAME):
        trash = path / f".{name}.removed"
        try:
            _remove(trash)
            os.rename(path / name, trash)
        except FileNotFoundError:
            continue
        except OSError:
            return
        _remove(trash)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_temporary_files(path: Path) -> None:
    """Delete the unfinished files that a killed process left in a run directory."""
    for pattern in (".*.tmp", "*/.*.tmp", ".*.removed"):
        for temporary in path.glob(pattern):
            if temporary.parent == path or not temporary.parent.is_symlink():
                _remove(temporary)


def _check_links(path: Path, error: type[RunDirectoryError] | type[DiskError] = RunDirectoryError) -> None:
    """Refuse links in place of the directories of a run: files outside would be written and deleted."""
    for name in ("checkpoints", "clients", "loggers", "tensorboard"):
        if (path / name).is_symlink():
            raise error(
                f"{path / name} is a symbolic link, which is not followed; replace it by the directory",
                path=path / name,
            )


def _write_info(path: Path, info: Mapping[str, Any]) -> None:
    write_atomically(path / "run.json", json.dumps(seal(info), indent=2) + "\n")


def _check_same_run(path: Path, existing: Config, requested: Config) -> None:
    """Refuse to continue a run with another configuration; only `rounds` may change."""
    there, here = flatten(existing.identity()), flatten(requested.identity())
    different = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    if different:
        key = different[0]
        more = f"; {len(different) - 1} more keys differ" if len(different) > 1 else ""
        raise RunDirectoryError(
            f"{path} holds a run of another configuration: {key} is {there.get(key)!r} there and "
            f"{here.get(key)!r} here{more}; choose another directory",
            path=path,
        )
