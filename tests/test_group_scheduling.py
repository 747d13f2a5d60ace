"""Tests with the same group run in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_scheduling import ROOT, file_groups, group_of

FILES = [
    file
    for file in sorted((ROOT / "tests").rglob("test_*.py"))
    if "xdist_group(" in file.read_text() and file != Path(__file__)
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_mark_in_a_file_is_read(file: Path) -> None:
    """Marks on classes, for example, would not be read."""
    of_file, of_functions = file_groups(str(file.relative_to(ROOT)))
    assert bool(of_file) + len(of_functions) == file.read_text().count("xdist_group(") > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_tests_of_this_session_have_the_groups_of_their_marks(
    file: Path, request: pytest.FixtureRequest
) -> None:
    name = str(file.relative_to(ROOT))
    marked = [item for item in request.session.items if item.nodeid.startswith(f"{name}::")]
    for item in marked:
        mark = item.get_closest_marker("xdist_group")
        assert group_of(item.nodeid) == (mark.args[0] if mark else item.nodeid)


def test_test_without_a_mark_is_a_group_of_its_own() -> None:
    assert group_of("tests/test_processor.py::test_a[1]") == "tests/test_processor.py::test_a[1]"
    assert group_of("src/fedopt/rng.py::fedopt.rng.generator") == "src/fedopt/rng.py::fedopt.rng.generator"
