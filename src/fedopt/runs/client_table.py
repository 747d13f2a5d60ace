"""The state that clients keep between rounds, such as SCAFFOLD's c_i, on disk.

A row is a file whose name contains the client and the round. A round writes new rows and never overwrites
older ones, so a resumed run finds the rows of its checkpoint. Rows that no checkpoint needs are removed.
"""

from __future__ import annotations

import shutil
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedopt.algorithms import Vector
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.errors import DiskError, RunDirectoryError
from fedopt.files import disk_errors, sync
from fedopt.runs.config import Config


class DiskTable:
    """The rows in `directory` after `t` rounds. Rows of later rounds are removed."""

    def __init__(self, directory: Path, names: tuple[str, ...], t: int) -> None:
        self._directory = directory
        self._names = names
        self._rounds: dict[int, list[int]] = defaultdict(list)  # client -> rounds with a row, ascending
        self._unsynced: set[Path] = set()
        directory.mkdir(exist_ok=True)
        for path in sorted(directory.iterdir()):
            client, round = _parse(path)
            if round is None or round >= t:
                path.unlink()
            else:
                self._rounds[client].append(round)

    def read(self, client: int) -> tuple[Vector, ...] | None:
        rounds = self._rounds.get(client)
        if not rounds:
            return None
        path = self._path(client, rounds[-1])
        try:
            with safe_open(path, framework="pt") as file:
                vectors = tuple(file.get_tensor(name) for name in self._names)
                if file.metadata()["crc32"] != _checksum(vectors):
                    raise ValueError("checksum differs")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise RunDirectoryError(
                f"client row {path} is damaged ({error}); start again in another directory", path=path
            ) from error
        return vectors

    def write(self, t: int, client: int, vectors: tuple[Vector, ...]) -> None:
        path = self._path(client, t)
        with disk_errors(path):
            tensors = dict(zip(self._names, vectors, strict=True))
            save_file(tensors, path, metadata={"crc32": _checksum(vectors)})
        self._rounds[client].append(t)
        self._unsynced.add(path)

    def discard(self, t: int) -> None:
        for client, rounds in self._rounds.items():
            if rounds and rounds[-1] == t:
                rounds.pop()
                self._path(client, t).unlink()
                self._unsynced.discard(self._path(client, t))

    def sync(self) -> None:
        """Flush all rows to the disk. Call this before a checkpoint refers to them."""
        for path in sorted(self._unsynced):
            sync(path)
        if self._unsynced:
            sync(self._directory)
        self._unsynced.clear()

    def prune(self, oldest: int) -> None:
        """Remove rows that no checkpoint from round `oldest` on needs."""
        for client, rounds in self._rounds.items():
            while len(rounds) > 1 and rounds[1] < oldest:
                self._path(client, rounds.pop(0)).unlink()

    def _path(self, client: int, round: int) -> Path:
        return self._directory / f"{client:07d}-{round:06d}.safetensors"


def read_statistics(run: Path, rounds: int) -> Callable[[int], Vector | None]:
    """Return a function that reads the running statistics which a client kept after `rounds` rounds."""
    latest: dict[int, Path] = {}
    for path in sorted((run / "clients").glob("*.safetensors")):
        client, round = _parse(path)
        if round is not None and round < rounds:
            latest[client] = path

    def read(client: int) -> Vector | None:
        if client not in latest:
            return None
        try:
            with safe_open(latest[client], framework="pt") as file:
                values: Vector = file.get_tensor(STATISTICS)
                return values
        except (OSError, SafetensorError) as error:
            message = f"client row {latest[client]} is damaged ({error})"
            raise RunDirectoryError(message, path=run) from error

    return read


def _parse(path: Path) -> tuple[int, int | None]:
    client, _, round = path.stem.partition("-")
    if path.suffix != ".safetensors" or not (client.isdigit() and round.isdigit()):
        return -1, None
    return int(client), int(round)


def _checksum(vectors: tuple[Vector, ...]) -> str:
    checksum = 0
    for vector in vectors:
        checksum = zlib.crc32(vector.detach().contiguous().numpy().data, checksum)
    return f"{checksum:08x}"


def client_state_bytes(config: Config, d: int, keeps: int, population: int) -> float:
    """Expected disk space of the state that clients keep: `keeps` vectors of length `d` each.

    A client has one row from its latest visit, and more rows that checkpoints still refer to.
    """
    checkpoint = config.checkpoint
    recent = min(config.rounds, checkpoint.keep * checkpoint.every) * config.clients_per_round
    return 4.0 * d * keeps * (_expected_clients(config, population) + recent)


def _expected_clients(config: Config, population: int) -> float:
    """The expected number of different clients in all rounds."""
    return population * (1 - (1 - config.clients_per_round / population) ** config.rounds)


def check_disk(directory: Path, config: Config, d: int, keeps: int, population: int) -> None:
    """Raise an error if the clients' state of a run will not fit on the disk."""
    existing = sum(path.stat().st_size for path in (directory / "clients").glob("*.safetensors"))
    needed = client_state_bytes(config, d, keeps, population) - existing
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DiskError(
            f"the state of about {_expected_clients(config, population):,.0f} clients needs "
            f"{needed / 1e9:.1f} GB, and {directory} has {free / 1e9:.1f} GB; use a larger disk or "
            "fewer rounds",
            path=directory,
        )
