"""Where a directory is: a local path or a URL."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedopt.errors import ConfigError

# `Path` turns "s3://bucket" into "s3:/bucket". Schemes have two letters or more.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)


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


def parse_location(text: StrPath) -> Location:
    """Return a local path, or a URL of another machine. A URL with the scheme `file` is a local path.

    >>> str(parse_location("s3://bucket/run/")), str(parse_location("file:///mnt/runs/a"))
    ('s3://bucket/run', '/mnt/runs/a')
    """
    match = _URL.fullmatch(os.fspath(text))
    if match is None:
        return Path(text)
    if match["scheme"] == "file":
        return Path("/" + match["rest"])
    return RemoteUrl(f"{match['scheme']}://{match['rest'].rstrip('/')}")


def local_path(text: StrPath, what: str) -> Path:
    """Return a local path. Refuse a URL; `what` names the argument."""
    location = parse_location(text)
    if isinstance(location, RemoteUrl):
        raise ConfigError(
            f"{what} must be a local path, got {location}; URLs work with `fedopt run` without --seeds, and "
            "with resume, report, eval and export",
            keys=(what,),
        )
    return location
