"""File selection: missing splits, missing vocabularies, and paths without data."""

from __future__ import annotations

import publicfiles as files
import pytest
from rejected import rejected_import


def test_missing_test_split_is_rejected(places) -> None:
    files.hdf5_directory(places.source)
    (places.source / "fed_emnist_test.h5").unlink()
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == places.source / "fed_emnist_train.h5" and "split 'test' not found" in str(error)


def test_empty_directory_is_rejected(places) -> None:
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == places.source and "found: nothing" in str(error)


@pytest.mark.parametrize("title", ["word_count", "tag_count"])
def test_missing_vocabulary_is_rejected(places, title: str) -> None:
    files.write_hdf5(places.source, "stackoverflow", files.stackoverflow())
    files.write_counts(places.source)
    (places.source / f"stackoverflow.{title}").unlink()
    error = rejected_import("stackoverflow", places.source, places.to)
    assert error.path is not None and error.path.name == f"stackoverflow.{title}"
    assert f"{title}.tar.bz2" in str(error)
