"""The output directory of a reproduction: which directories are refused and left unchanged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from reproduction_runs import TINY

from fedopt.errors import RunDirectoryError
from fedopt.files import lock_directory
from fedopt_paper.reproduce import ReproduceOptions, reproduce
from fedopt_paper.scales import SCALES


def options_for(out: Path) -> ReproduceOptions:
    return ReproduceOptions("datasets", TINY, out, "synthetic", "so_lr")


@pytest.mark.parametrize("change", [{"scale": SCALES["small"]}, {"variant": "as_printed"}])
def test_directory_holds_one_scale_and_one_variant(tmp_path: Path, change: dict[str, object]) -> None:
    reproduce(options_for(tmp_path))
    page = (tmp_path / "index.html").read_text()
    with pytest.raises(RunDirectoryError, match="scale tiny|variant as_run") as caught:
        reproduce(replace(options_for(tmp_path), **change))  # type: ignore[arg-type]
    assert caught.value.path == tmp_path
    assert (tmp_path / "index.html").read_text() == page
    reproduce(options_for(tmp_path))


@pytest.mark.parametrize("content", ["{", "[]", '{"scale": "tiny"}'])
def test_damaged_marker_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "reproduction.json").write_text(content)
    with pytest.raises(RunDirectoryError, match="reproduction.json is damaged") as caught:
        reproduce(options_for(tmp_path))
    assert caught.value.path == tmp_path


def test_directory_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(RunDirectoryError) as caught:
        reproduce(options_for(tmp_path))
    assert caught.value.path == tmp_path
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("index.html", "mine")]


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/new"])
def test_path_that_cannot_be_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunDirectoryError, match="choose another directory") as caught:
        reproduce(options_for(tmp_path / name))
    assert caught.value.path == tmp_path / name
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "mine")]


def test_two_reproductions_do_not_use_a_directory_at_once(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path, "reproduction")
    with pytest.raises(RunDirectoryError) as caught:
        reproduce(options_for(tmp_path))
    assert caught.value.path == tmp_path
    os.close(lock)
    assert reproduce(options_for(tmp_path))
