"""Where a directory is: a local path or a URL."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedopt.errors import ConfigError

# `Path` turns "s3://bucket" into "s3:/bucket". Schemes have two letters or more.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):(?://|/(?!/))(?P<rest>.*)", re.DOTALL | re.IGNORECASE)
# A path of this form was probably meant as a URL.
_NO_URL = re.compile(
    r"[^/]*://.*|(abfss?|adl|az|file|ftp|gcs|gs|hdfs|https?|local|memory|s3a?|sftp|smb|ssh|webhdfs|zip):.*",
    re.DOTALL | re.IGNORECASE,
)
_PASSWORD = re.compile(r"[^/@]*:[^/]*@")


@dataclass(frozen=True)
class RemoteUrl:
    """The URL of a directory, without a slash at the end."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def scheme(self) -> str:
        return self.text.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.text.rpartition("/")[2]

    @property
    def digest(self) -> str:
        """A short checksum that identifies the URL in file names."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


Location = Path | RemoteUrl
StrPath = str | os.PathLike[str]


def is_url(text: StrPath) -> bool:
    """Whether this is a URL.

    >>> is_url("s3://bucket/run"), is_url("runs/a"), is_url("file:///mnt/runs/a")
    (True, False, True)
    """
    return _URL.fullmatch(os.fspath(text)) is not None


def parse_location(text: StrPath, expected: str = "a path or a URL") -> Location:
    """Return a local path, or a URL of another machine. The schemes `file` and `local` are local paths.

    `expected` says in the error what may be passed instead of an object of another type.

    >>> str(parse_location("s3://bucket/run/")), str(parse_location("file:///mnt/runs/a"))
    ('s3://bucket/run', '/mnt/runs/a')
    """
    if not isinstance(text, str | os.PathLike):
        raise ConfigError(f"expected {expected}, got an object of type {type(text).__name__}")
    parts = os.fspath(text).split("::")
    if parts[1:] and any(map(is_url, parts)):  # such as simplecache::s3://bucket/run
        raise ConfigError(
            "the URL is a chain of protocols (::), which is not supported; use one, such as s3://bucket/run",
            keys=("url",),
        )
    match = _URL.fullmatch(os.fspath(text))
    if match is None:
        if isinstance(text, str) and _NO_URL.fullmatch(text):
            raise ConfigError(
                f"{text} is neither a path nor a URL; write ./{text} for a local directory, or a URL such as "
                "s3://bucket/run",
                keys=("url",),
            )
        return Path(text)
    scheme, rest = match["scheme"].lower(), match["rest"]
    if scheme in ("file", "local"):
        if ".." in rest.split("/") or ("://" in str(text) and not rest.startswith("/")):
            raise ConfigError(
                f"{text} is not a local directory; write {scheme}:///absolute/path, or the path alone",
                keys=("url",),
            )
        return Path("/" + rest.lstrip("/"))
    if _PASSWORD.match(rest):  # messages and run.json would show it
        host = rest.partition("/")[0].rpartition("@")[2]
        raise ConfigError(
            f"the URL {scheme}://...@{host} contains a password; set the credentials in the environment or "
            "in the configuration of fsspec (~/.config/fsspec)",
            keys=("url",),
        )
    return RemoteUrl(f"{scheme}://{rest.rstrip('/')}")


def local_path(text: StrPath, what: str) -> Path:
    """Return a local path. Refuse a URL.

    Args:
        text: the path.
        what: the name of the argument, for the error.

    Returns:
        The path.

    Examples:
        >>> local_path("runs/tau", "--out")
        PosixPath('runs/tau')
    """
    location = parse_location(text, f"a path for {what}")
    if isinstance(location, RemoteUrl):
        raise ConfigError(
            f"{what} must be a local path, got {location}; URLs work with `fedopt run` without --seeds, and "
            "with resume, report, eval and export",
            keys=(what,),
        )
    return location
