"""The exceptions that fedopt raises.

    FedoptError            base class; the message is one line
      UserError            a mistake in the request (exit code 2)
        UnknownName        a name that does not exist: kind, name, allowed
        ConfigError        invalid configuration keys or values: keys
        DataError          a file or dataset that cannot be used: path, client, line, column
        RunDirectoryError  a directory that cannot be used for a run: path
        RemoteDirectoryError  a URL that cannot be read or written, or is in use: url
        ModelError         a model, loss or algorithm that breaks its contract: what, client, round
        UserCodeError      a user's module or function failed: reference, path, line
        ClusterError       a Ray cluster that cannot be used: address, nodes
        MissingExtra       an optional package is not installed: package, extra
        MissingProgram     a program of the system is not installed: program
      RunError             a correct request that failed (exit code 1)
        Diverged           the updates are no longer finite: round, clients
        WorkerError        a worker process failed: client, round
        DiskError          a file cannot be written or the disk is full: path
        CompileError       the compiler of executor `compiled` failed
        UploadError        a run cannot be copied to its URL, or another process writes there: url, path
    ResumeWarning          a resumed run has damaged files, or was started with another version
    ExecutorWarning        an executor cannot train clients together, as it should

Tests and callers use the class and its attributes. The text is for people and may change.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "ClusterError",
    "CompileError",
    "ConfigError",
    "DataError",
    "DiskError",
    "Diverged",
    "FedoptError",
    "MissingExtra",
    "MissingProgram",
    "ModelError",
    "RemoteDirectoryError",
    "ResumeWarning",
    "RunDirectoryError",
    "RunError",
    "UnknownName",
    "UploadError",
    "UserCodeError",
    "UserError",
    "WorkerError",
    "unknown",
]

MAX_LISTED = 50  # names in a message


class FedoptError(Exception):
    """Base class of all errors that fedopt raises on purpose. The message is one line."""

    exit_code = 1


class UserError(FedoptError):
    """The request cannot be carried out: an unknown name, an invalid value, an unsuitable file."""

    exit_code = 2


class UnknownName(UserError):
    """A name that does not exist. The message suggests the closest existing name."""

    def __init__(self, message: str, *, kind: str = "", name: str = "", allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kind, self.name, self.allowed = kind, name, tuple(allowed)


class ConfigError(UserError):
    """Configuration keys or values are invalid. `keys` lists them."""

    def __init__(self, message: str, *, keys: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class DataError(UserError):
    """A data file, a dataset or a client's examples cannot be used."""

    def __init__(
        self,
        message: str,
        *,
        path: Path | str | None = None,
        client: str | None = None,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path = None if path is None else Path(path)
        self.client, self.line, self.column = client, line, column


class RunDirectoryError(UserError):
    """A directory is damaged, in use, belongs to another run, or is not a run directory."""

    def __init__(self, message: str, *, path: Path | str | None = None) -> None:
        super().__init__(message)
        self.path = None if path is None else Path(path)


class RemoteDirectoryError(UserError):
    """A URL cannot be read or written, or another process uses it."""

    def __init__(self, message: str, *, url: str = "") -> None:
        super().__init__(message)
        self.url = url


class ModelError(UserError):
    """A model, loss, metric or algorithm breaks its contract. `what` names the part."""

    def __init__(
        self, message: str, *, what: str = "", client: str | None = None, round: int | None = None
    ) -> None:
        super().__init__(message)
        self.what, self.client, self.round = what, client, round


class UserCodeError(UserError):
    """A user's module cannot be imported, or its function raised an exception or returned a wrong object."""

    def __init__(
        self, message: str, *, reference: str = "", path: Path | str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.reference = reference  # module:name
        self.path = None if path is None else Path(path)
        self.line = line


class ClusterError(UserError):
    """A Ray cluster cannot be used. `nodes` are the names of the nodes that differ."""

    def __init__(self, message: str, *, address: str | None = None, nodes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.address, self.nodes = address, tuple(nodes)


class MissingExtra(UserError):
    """An optional package is not installed."""

    def __init__(self, message: str, *, package: str = "", extra: str = "") -> None:
        super().__init__(message)
        self.package, self.extra = package, extra


class MissingProgram(UserError):
    """A program of the system is not installed."""

    def __init__(self, message: str, *, program: str = "") -> None:
        super().__init__(message)
        self.program = program


class RunError(FedoptError):
    """A correct request failed: a client raised an error, a worker died, the disk is full."""


class Diverged(RunError):
    """The run was stopped because its updates were not finite. A sweep continues without it."""

    def __init__(self, message: str, *, round: int | None = None, clients: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.round, self.clients = round, tuple(clients)


class WorkerError(RunError):
    """A job failed in a worker, or the worker process died."""

    def __init__(self, message: str, *, client: str | None = None, round: int | None = None) -> None:
        super().__init__(message)
        self.client, self.round = client, round


class DiskError(RunError):
    """A file cannot be written."""

    def __init__(self, message: str, *, path: Path | str | None = None) -> None:
        super().__init__(message)
        self.path = None if path is None else Path(path)


class CompileError(RunError):
    """The step of executor `compiled` could not be compiled."""


class UploadError(RunError):
    """A run cannot be copied to its URL, or another process writes there. `path` is the local copy."""

    def __init__(self, message: str, *, url: str = "", path: Path | str | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.path = None if path is None else Path(path)


class ResumeWarning(UserWarning):
    """A run is resumed with another version, from an earlier checkpoint, or from round 0."""


class ExecutorWarning(UserWarning):
    """An executor that trains clients together has to train them one after the other."""


def unknown(kind: str, name: str, allowed: Iterable[str], also: str = "") -> UnknownName:
    """Build the error for an unknown name, with the closest allowed one as a suggestion.

    Args:
        kind: what the name names.
        name: the unknown name.
        allowed: the allowed names.
        also: further allowed names, in words.

    Returns:
        The error, to be raised.

    Examples:
        >>> str(unknown("algorithm", "fedadm", ["fedavg", "fedadam"]))
        "unknown algorithm 'fedadm' (did you mean 'fedadam'?); allowed: fedavg, fedadam"
    """
    names = list(allowed)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    shown = [" ".join(allowed_name.split()) for allowed_name in names[:MAX_LISTED]]
    listed = ", ".join([*shown, "..."] if len(names) > MAX_LISTED else shown)
    listed += f", or {also}" if also else ""
    return UnknownName(
        f"unknown {kind} {name!r}{hint}; allowed: {listed}", kind=kind, name=name, allowed=names
    )


def missing_extra(feature: str, package: str, extra: str) -> MissingExtra:
    """Build the error for an optional package that is not installed.

    >>> str(missing_extra("--search optuna", "optuna", "optuna"))
    '--search optuna needs the package optuna: pip install optuna'
    """
    message = f"{feature} needs the package {package}: pip install {package}"
    return MissingExtra(message, package=package, extra=extra)


def one_line(error: Exception) -> str:
    """Return type and message of an exception on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
