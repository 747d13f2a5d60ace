"""The manifest of a store: its content, checked on reading."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from fedopt.data.store.columns import FORMAT
from fedopt.errors import DataError

# A file name inside the directory of a split: no separator, not hidden, no "..".
PlainName = Annotated[str, Field(pattern=re.compile(r"\A[^./\\\0][^/\\\0]*\Z"))]


Size = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True)


class SourceEntry(_Checked):
    """An imported file."""

    file: str
    sha256: str
    bytes: Size


class ColumnEntry(_Checked):
    """The type of a column."""

    dtype: Annotated[str, Field(pattern=re.compile(r"\A[<|>=]?[biuf][1248]\Z"))]
    shape: list[Size] = []
    ragged: bool = False


class SplitEntry(_Checked):
    """The size and the columns of a split."""

    clients: Annotated[int, Field(ge=1, lt=1 << 63)]
    examples: Size
    columns: dict[PlainName, ColumnEntry]


class Manifest(_Checked):
    """The content and the source of a store."""

    format: Literal[1]
    name: str
    fedopt: str = ""
    source: list[SourceEntry] = []
    splits: dict[PlainName, SplitEntry]
    texts: list[PlainName] = []
    notes: dict[str, Any] = {}
    files: dict[str, Size]
    sha256: dict[str, str] = {}  # of the files; absent in stores of 0.2.0, like the next one
    checksum: str = ""  # of the manifest itself


def content_checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all fields of a manifest but `checksum`."""
    fields = {name: value for name, value in content.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest. Raise OSError, or ValueError with a message of one line if it is not valid."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    try:
        content = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] != FORMAT:
        message = f"{path.parent} has store format {content['format']}, not {FORMAT}; import it again"
        raise DataError(message, path=path.parent)
    try:
        manifest = Manifest.model_validate(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        raise ValueError(f"it is not the manifest of a store ({where}: {first['msg']})") from None
    if (manifest.checksum or manifest.sha256) and manifest.checksum != content_checksum(content):
        raise ValueError("its content has changed (SHA-256)")
    return manifest.model_dump()
