"""Read JSON and TOML files that may be damaged or malicious.

Any problem with the content is a ValueError, any problem with the file an OSError. Named pipes and devices
are refused, because reading them could wait forever.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

MAX_DEPTH = 50  # nested tables and lists; our own files have at most five levels
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_TOO_LARGE = "an integer has more than 64 bits"


def read_regular_file(path: Path) -> bytes:
    """Read a file. Refuse anything that is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait for a pipe
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def parse_json(text: bytes | str) -> Any:
    """Parse JSON. Refuse deeply nested documents and huge integers.

    >>> parse_json('{"rounds": [1, 2]}')
    {'rounds': [1, 2]}
    """
    with _plain_errors():
        return _check(json.loads(text))


def parse_toml(text: bytes | str) -> dict[str, Any]:
    """Parse TOML. Refuse deeply nested documents and huge integers."""
    with _plain_errors():
        document = tomllib.loads(text if isinstance(text, str) else text.decode())
    _check(document)
    return document


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Describe errors of the interpreter in terms of the document."""
    try:
        yield
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise ValueError(_TOO_LARGE if "digits" in str(error) else str(error)) from None


def _check(document: Any) -> Any:
    """Refuse deep nesting and huge integers, which parsers may accept and later functions do not.

    Levels are counted without recursion.
    """
    level = [document]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
            elif isinstance(value, int) and value.bit_length() > 64:
                raise ValueError(_TOO_LARGE)
        if not inner:
            return document
        level = inner
    raise ValueError(_TOO_DEEP)


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its own SHA-256, which replaces an earlier one."""
    return {**document, "sha256": _checksum(document)}


def is_intact(document: Any) -> bool:
    """Whether a document fits its own SHA-256, if it has one. Older versions did not write it."""
    if not isinstance(document, dict) or "sha256" not in document:
        return True
    return bool(document["sha256"] == _checksum(document))


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps({key: value for key, value in document.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_problem(error: ValidationError) -> str:
    """Describe the first problem of a document in a few words, with its key."""
    problem = error.errors()[0]
    key = ".".join(map(str, problem["loc"]))
    if not key:
        return "expected one JSON object"
    if problem["type"] == "missing":
        return f"{key!r} is missing"
    text = problem["msg"].removeprefix("Input ")
    return f"{key!r} {text}" if text.startswith("should") else f"{key!r}: {text}"
