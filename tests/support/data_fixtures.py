"""Fixtures of the data tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest


class Places(NamedTuple):
    """A directory for source files and one for stores."""

    source: Path
    to: Path


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "in", tmp_path / "out")
    found.source.mkdir()
    found.to.mkdir()
    return found
