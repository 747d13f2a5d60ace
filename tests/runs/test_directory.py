"""Functions on run directories that sweeps and reproductions use."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_cases import train
from written import read_info, write_run

from fedopt.errors import RunDirectoryError
from fedopt.files import check_directory
from fedopt.runs.directory import mark_pruned, remove_checkpoints, remove_temporary_files


@pytest.mark.parametrize("status", ["running", "failed"])
def test_mark_pruned_records_rounds_and_loss(status: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", status=status)
    mark_pruned(tmp_path / "run", 4, 0.25)
    info = read_info(tmp_path / "run")
    assert (info["status"], info["rounds_done"], info["train_loss"]) == ("pruned", 4, 0.25)
    assert info["task"] == "emnist_cr"


@pytest.mark.parametrize("status", ["done", "diverged", "pruned"])
def test_mark_pruned_does_not_change_ended_runs(status: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", status=status)
    before = read_info(tmp_path / "run")
    mark_pruned(tmp_path / "run", 4, 0.25)
    assert read_info(tmp_path / "run") == before


def test_run_without_checkpoints_keeps_its_numbers_and_starts_again_when_extended(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train("scaffold", out, settings={"rounds": 3})
    before = read_info(out)
    remove_checkpoints(out)
    assert read_info(out) == before
    names = {entry.name for entry in out.iterdir()} - {".lock"}
    assert names == {"config.toml", "data.json", "metrics.jsonl", "run.json"}
    remove_checkpoints(out)  # nothing is left to remove
    assert train("scaffold", out).x_sha256 == train("scaffold", None).x_sha256


def test_temporary_files_and_directories_are_removed(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / ".000004.17.tmp").mkdir(parents=True)
    (tmp_path / "run" / ".run.json.17.tmp").touch()
    remove_temporary_files(tmp_path / "run")
    assert list((tmp_path / "run").rglob("*.tmp")) == []
    assert (tmp_path / "run" / "run.json").is_file()


def test_new_empty_and_known_directories_are_accepted(tmp_path: Path) -> None:
    assert check_directory(tmp_path / "new", "sweep", "sweep.json") is False
    assert check_directory(tmp_path, "sweep", "sweep.json") is False
    (tmp_path / ".hidden").touch()
    (tmp_path / "leftover").touch()
    assert check_directory(tmp_path, "sweep", "sweep.json", ["leftover"]) is False
    (tmp_path / "sweep.json").touch()
    assert check_directory(tmp_path, "sweep", "sweep.json") is True


def test_files_and_foreign_directories_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.touch()
    for path in (tmp_path, file):
        with pytest.raises(RunDirectoryError) as error:
            check_directory(path, "sweep", "sweep.json")
        assert error.value.path == path
