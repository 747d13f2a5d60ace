"""List, read, write and delete the files of a remote directory.

Writing a file replaces it in one step on object stores. They have no append, no rename and no lock.
"""

from __future__ import annotations

import glob
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedopt.errors import MissingExtra, RemoteDirectoryError, missing_extra
from fedopt.remote.location import RemoteUrl

# A host that does not answer is an error after a minute: two attempts of 30 seconds.
_S3 = {"config_kwargs": {"connect_timeout": 10, "read_timeout": 30, "retries": {"max_attempts": 0}}}
_S3_ATTEMPTS = 2
_OPTIONS: dict[str, dict[str, Any]] = {"s3": _S3, "s3a": _S3}
# On these, a directory is only a part of a name. Others need directories before files.
_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss")
_BLOCK = 1 << 22  # bytes per request when a file is copied
_SECONDS_TO_ANSWER = 60.0
_MIN_RATE = 20_000  # bytes per second of a request


class RemoteDirectory:
    """The files below a URL. Names are relative to it."""

    def __init__(self, url: RemoteUrl) -> None:
        self.url = url
        self._fs, root = _open_filesystem(url)
        self._root = root.rstrip("/")

    def files(self) -> list[str]:
        """Return the names of all files, sorted; none if the directory does not exist."""
        with _errors(self.url, "read"):
            found = self._fs.find(self._root)
        return sorted(name for path in found if (name := str(path).removeprefix(self._root).lstrip("/")))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        with _errors(self.url, "read"):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with _errors(self.url, "write"):
            self._make_parents([name])
            self._fs.pipe_file(self._path(name), content)

    def upload(self, directory: Path, names: Sequence[str]) -> None:
        """Copy files from a local directory, in any order."""
        with _errors(self.url, "write"):
            if names:
                self._make_parents(names)
                self._fs.put([str(directory / name) for name in names], [self._path(name) for name in names])

    def download(self, names: Sequence[str], directory: Path) -> None:
        """Copy files to a local directory, in any order. The caller knows that no name leads out of it."""
        for parent in {(directory / name).parent for name in names}:
            parent.mkdir(parents=True, exist_ok=True)
        with _errors(self.url, "read"):
            if names:
                self._fs.get([self._path(name) for name in names], [str(directory / name) for name in names])

    def copy(self, name: str, target: BinaryIO, max_bytes: int) -> None:
        """Copy a file to an open local file. Stop with an error after `max_bytes` bytes."""
        with _errors(self.url, "read"), self._fs.open(self._path(name), "rb", cache_type="none") as source:
            left = max_bytes
            while block := _read_block(source, min(_BLOCK, left + 1)):
                left -= len(block)
                if left < 0:
                    raise ValueError(f"{name} has more than the {max_bytes:,} bytes that are allowed")
                target.write(block)

    def delete(self, names: Sequence[str]) -> None:
        with _errors(self.url, "write"):
            paths = [self._path(name) for name in names]
            if any(map(glob.has_magic, paths)):  # `rm` would expand them
                for path in paths:
                    self._fs.rm_file(path)
            elif paths:
                self._fs.rm(paths)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_parents(self, names: Iterable[str]) -> None:
        if self.url.scheme not in _OBJECT_STORES:  # there, this would create a bucket
            for parent in {self._path(name).rpartition("/")[0] for name in names}:
                self._fs.makedirs(parent, exist_ok=True)


def _read_block(source: Any, size: int) -> bytes:
    """Read up to `size` bytes. Raise TimeoutError if they arrive slower than `_MIN_RATE`.

    The protocols limit the time between two packets only, so a server could send one byte after the other.
    """
    results: list[bytes | Exception] = []

    def read() -> None:
        try:
            results.append(source.read(size))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_SECONDS_TO_ANSWER + size / _MIN_RATE)
    if not results:
        raise TimeoutError(f"slower than {_MIN_RATE:,} bytes per second")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def _open_filesystem(url: RemoteUrl) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra(str(url), "fsspec", "remote") from error
    options = _OPTIONS.get(url.scheme, {})
    try:
        # Cached listings would hide what other machines write.
        filesystem, path = fsspec.url_to_fs(
            str(url), use_listings_cache=False, skip_instance_cache=True, **options
        )
    except ImportError as error:
        raise _missing_package(url) from error
    except ValueError as error:
        raise RemoteDirectoryError(
            f"{url} has the unknown protocol {url.scheme!r}; use s3, gs or another protocol of fsspec",
            url=str(url),
        ) from error
    except Exception as error:
        raise _describe(url, "open", error) from error
    if options is _S3:
        filesystem.retries = _S3_ATTEMPTS
    return filesystem, path


def _missing_package(url: RemoteUrl) -> MissingExtra:
    from fsspec.registry import known_implementations

    package = known_implementations[url.scheme]["class"].partition(".")[0]
    if package == "s3fs":
        return missing_extra(str(url), package, "remote")
    return MissingExtra(f"{url} needs the package {package}: pip install {package}", package=package)


@contextmanager
def _errors(url: RemoteUrl, action: str) -> Iterator[None]:
    """Convert the exceptions of a file system. Each has its own classes, so all are converted."""
    try:
        yield
    except Exception as error:
        raise _describe(url, action, error) from error


def _describe(url: RemoteUrl, action: str, error: Exception) -> RemoteDirectoryError:
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, PermissionError) or "credentials" in reason.lower():
        remedy = "check the credentials and their permissions"
    elif isinstance(error, FileNotFoundError):
        remedy = "check the name of the bucket"
    else:
        remedy = "check the address and the network"
    return RemoteDirectoryError(f"cannot {action} {url}: {reason}; {remedy}", url=str(url))
