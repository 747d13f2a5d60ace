"""Text between markers of a document."""

from __future__ import annotations

from pathlib import Path

import pytest
from speed.origin import MarkedBlock

from fedopt.errors import DataError

ROOT = Path(__file__).resolve().parents[2]


def test_write_replaces_only_the_text_between_the_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- numbers: begin -->\nold\n<!-- numbers: end -->\nafter\n")
    MarkedBlock(page, "numbers").write(["new", "lines"])
    assert page.read_text() == ("before\n<!-- numbers: begin -->\nnew\nlines\n<!-- numbers: end -->\nafter\n")


@pytest.mark.parametrize("text", [None, "no markers", "<!-- numbers: begin -->", "<!-- numbers: end -->"])
def test_document_without_markers_is_rejected(tmp_path, text):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(DataError) as error:
        MarkedBlock(page, "numbers")
    assert error.value.path == page


def test_documents_contain_the_blocks_that_benchmarks_write():
    MarkedBlock(ROOT / "benchmarks" / "README.md", "bench")
    MarkedBlock(ROOT / "docs" / "performance.md", "growth")
    MarkedBlock(ROOT / "docs" / "performance.md", "fast paths")
