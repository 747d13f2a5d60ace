"""Encoding: invalid text and vocabularies are rejected."""

from __future__ import annotations

import publicfiles as files
import pytest
from rejected import rejected_import


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
@pytest.mark.parametrize(("name", "field"), [("shakespeare", "snippets"), ("stackoverflow", "tokens")])
def test_text_that_is_not_utf8_is_rejected(places, kind: str, name: str, field: str) -> None:
    data = getattr(files, name)()
    client = sorted(data["train"])[0]
    data["train"][client][field][0] = b"caf\xe9"
    files.write_counts(places.source)
    if kind == "hdf5":
        path = files.write_hdf5(places.source, name, data)[0]
    else:
        path = files.write_sqlite(places.source / f"{name}.sqlite", data)
    error = rejected_import(name, places.source, places.to)
    assert (error.path, error.client) == (path, client)


@pytest.mark.parametrize(
    ("title", "text"), [("word_count", "word\n"), ("tag_count", "[1]"), ("tag_count", "{")]
)
def test_damaged_vocabulary_is_rejected(places, title: str, text: str) -> None:
    files.write_hdf5(places.source, "stackoverflow", files.stackoverflow())
    files.write_counts(places.source)
    (places.source / f"stackoverflow.{title}").write_text(text)
    error = rejected_import("stackoverflow", places.source, places.to)
    assert error.path == places.source / f"stackoverflow.{title}"
