"""Check that an import fails with one line and leaves no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.errors import DataError


def rejected_import(name: str, path: Path, to: Path, **options: Any) -> DataError:
    """Return the error of an import into the empty directory `to`, which must be empty afterwards."""
    with pytest.raises(DataError) as caught:
        import_dataset(name, [path], to / "store", ImportOptions(**options))
    assert "\n" not in str(caught.value)
    assert list(to.iterdir()) == []
    return caught.value
