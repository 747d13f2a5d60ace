"""The state that clients keep between rounds, such as SCAFFOLD's c_i, on disk.

A row is a file whose name contains the client and the round. A round writes new rows and never overwrites
older ones, so a resumed run finds the rows of its checkpoint. Rows that no checkpoint needs are removed.
A checkpoint lists the rows that it needs with their checksums.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save

from fedopt.algorithms import Vector
from fedopt.documents import read_regular_file
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import disk_errors, open_without_links, sync
from fedopt.formatting import format_count
from fedopt.runs.config import Config

RowChecksums = Mapping[str, str]  # file name -> SHA-256


class _Row(NamedTuple):
    round: int
    sha256: str  # "" for a row that only older checkpoints need


class DiskTable:
    """The rows in `directory` after `t` rounds. Rows of later rounds are removed."""

    def __init__(
        self, directory: Path, names: tuple[str, ...], t: int, expected: RowChecksums | None = None
    ) -> None:
        """`expected` are the rows that the checkpoint lists; checkpoints of older versions list none."""
        self._directory = directory
        self._names = names
        self._rows: dict[int, list[_Row]] = defaultdict(list)  # by client, ascending
        self._unsynced: set[Path] = set()
        directory.mkdir(exist_ok=True)
        for name, checksum in (expected or {}).items():
            _verify(directory / name, checksum)
        latest = {client: round for client, round in map(_parse, map(Path, expected or {}))}
        for path in sorted(directory.iterdir()):
            client, round = _parse(path)
            if round < 0 or round >= t or (expected is not None and round > latest.get(client, -1)):
                path.unlink()
                continue
            checksum = _checksum(path) if expected is None else expected.get(path.name, "")
            self._rows[client].append(_Row(round, checksum))

    def read(self, client: int) -> tuple[Vector, ...] | None:
        rows = self._rows.get(client)
        if not rows:
            return None
        path = self._path(client, rows[-1].round)
        with _damage(path):
            data = read_regular_file(path)
            if hashlib.sha256(data).hexdigest() != rows[-1].sha256:
                raise ValueError("its checksum differs")
            vectors = load(data)
            return tuple(vectors[name] for name in self._names)

    def write(self, t: int, client: int, vectors: tuple[Vector, ...]) -> None:
        path = self._path(client, t)
        data = save(dict(zip(self._names, vectors, strict=True)))
        with disk_errors(path):
            try:
                with open(path, "wb", opener=open_without_links) as file:
                    file.write(data)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        self._rows[client].append(_Row(t, hashlib.sha256(data).hexdigest()))
        self._unsynced.add(path)

    def discard(self, t: int) -> None:
        for client, rows in self._rows.items():
            if rows and rows[-1].round == t:
                rows.pop()
                self._path(client, t).unlink()
                self._unsynced.discard(self._path(client, t))

    def sync(self) -> None:
        """Flush all rows to the disk. Call this before a checkpoint refers to them."""
        with disk_errors(self._directory):
            for path in sorted(self._unsynced):
                sync(path)
            if self._unsynced:
                sync(self._directory)
        self._unsynced.clear()

    def checksums(self, t: int) -> RowChecksums:
        """The latest row of each client after `t` rounds. An interrupted round may have written more."""
        complete = {client: [row for row in rows if row.round < t] for client, rows in self._rows.items()}
        latest = {client: rows[-1] for client, rows in sorted(complete.items()) if rows}
        return {self._path(client, row.round).name: row.sha256 for client, row in latest.items()}

    def prune(self, oldest: int) -> None:
        """Remove rows that no checkpoint from round `oldest` on needs."""
        for client, rows in self._rows.items():
            while len(rows) > 1 and rows[1].round < oldest:
                self._path(client, rows.pop(0).round).unlink(missing_ok=True)

    def _path(self, client: int, round: int) -> Path:
        return self._directory / f"{client:07d}-{round:06d}.safetensors"


def read_statistics(run: Path, rounds: int, expected: RowChecksums | None) -> Callable[[int], Vector | None]:
    """Return a function that reads the running statistics which a client kept after `rounds` rounds.

    `expected` are the rows that the checkpoint lists; checkpoints of older versions list none.
    """
    latest: dict[int, Path] = {}
    for path in sorted((run / "clients").glob("*.safetensors")):
        client, round = _parse(path)
        if 0 <= round < rounds:
            latest[client] = path

    def read(client: int) -> Vector | None:
        if client not in latest:
            return None
        if expected is not None:
            _verify(latest[client], expected.get(latest[client].name, ""))
        with _damage(latest[client]):
            return load(read_regular_file(latest[client]))[STATISTICS]

    return read


def _parse(path: Path) -> tuple[int, int]:
    """Return the client and the round of a row, (-1, -1) for other files."""
    client, _, round = path.stem.partition("-")
    if path.suffix != ".safetensors" or not (client.isdecimal() and round.isdecimal()):
        return -1, -1
    return int(client), int(round)


def _checksum(path: Path) -> str:
    with _damage(path):
        return hashlib.sha256(read_regular_file(path)).hexdigest()


def _verify(path: Path, expected: str) -> None:
    if _checksum(path) != expected:
        raise RunDirectoryError(f"{path} has changed since its checkpoint was written; {_REMEDY}", path=path)


_REMEDY = "restore it, or start again in another directory"


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Convert errors of a row that is missing, unreadable or damaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunDirectoryError(
            f"{path} is missing, and a checkpoint needs it; {_REMEDY}", path=path
        ) from error
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror or error}", path=path) from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); {_REMEDY}", path=path) from error


def client_state_bytes(config: Config, d: int, keeps: int, population: int) -> float:
    """Estimate the disk space of the state that clients keep.

    Args:
        config: the configuration of the run.
        d: the number of parameters.
        keeps: the number of vectors that a client keeps. It has one row of them from its latest visit, and
            more rows that checkpoints still refer to.
        population: the number of clients.

    Returns:
        The expected number of bytes.

    Examples:
        >>> import fedopt
        >>> config = fedopt.RunRequest("so_lr", "fedavg").prepare().config
        >>> client_state_bytes(config, d=1000, keeps=0, population=100)
        0.0
    """
    checkpoint = config.checkpoint
    recent = min(config.rounds, checkpoint.keep * checkpoint.every) * config.clients_per_round
    return 4.0 * d * keeps * (_expected_clients(config, population) + recent)


def _expected_clients(config: Config, population: int) -> float:
    """The expected number of different clients in all rounds."""
    return population * (1 - (1 - config.clients_per_round / population) ** config.rounds)


def check_disk(directory: Path, config: Config, d: int, keeps: int, population: int) -> None:
    """Raise a `DiskError` if the clients' state of a run will not fit on the disk.

    Args:
        directory: the run directory, or one on the same disk.
        config: the configuration of the run.
        d: the number of parameters.
        keeps: the number of vectors that a client keeps.
        population: the number of clients.

    Returns:
        None.

    Examples:
        >>> import fedopt
        >>> config = fedopt.RunRequest("so_lr", "fedavg").prepare().config
        >>> check_disk(Path(), config, d=1000, keeps=0, population=100)
    """
    existing = sum(path.stat().st_size for path in (directory / "clients").glob("*.safetensors"))
    needed = client_state_bytes(config, d, keeps, population) - existing
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DiskError(
            f"the state of about {_expected_clients(config, population):,.0f} clients needs "
            f"{format_count(int(needed))}B, and {directory} has {format_count(free)}B; use a larger disk or "
            "fewer rounds",
            path=directory,
        )
