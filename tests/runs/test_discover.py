"""Run directories found below a path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from written import write_run

from fedopt.errors import UserError
from fedopt.runs.discover import find_runs


def test_runs_are_found_once_at_any_depth_in_order(tmp_path: Path) -> None:
    for name in ("compare/fedavg/seed-10", "compare/fedavg/seed-2", "compare/fedyogi/seed-2", "alone"):
        write_run(tmp_path / name)
    (tmp_path / "compare/report.html").write_text("")
    shutil.copytree(tmp_path / "alone", tmp_path / "alone/export/copy")  # a copy inside a run directory
    shutil.copytree(tmp_path / "alone", tmp_path / "compare/.hidden/run")
    found = find_runs([tmp_path / "compare", tmp_path])
    assert [str(run.path.relative_to(tmp_path)) for run in found.records] == [
        "compare/fedavg/seed-2",
        "compare/fedavg/seed-10",
        "compare/fedyogi/seed-2",
        "alone",
    ]
    assert found.damaged == []
    assert [run.path for run in find_runs([tmp_path / "alone"]).records] == [tmp_path / "alone"]


@pytest.mark.parametrize("lost", ["run.json", "config.toml", "metrics.jsonl"])
def test_damaged_run_is_reported_and_skipped(lost: str, tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        write_run(tmp_path / name)
    (tmp_path / "second" / lost).unlink()
    (tmp_path / "third" / lost).write_bytes(b'{"round": \xff\n=\n')
    found = find_runs([tmp_path])
    assert [run.path.name for run in found.records] == ["first"]
    assert len(found.damaged) == 2
    for line, name in zip(found.damaged, ("second", "third"), strict=True):
        assert str(tmp_path / name) in line and lost in line and "\n" not in line


def test_path_without_runs_is_rejected(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, why in (("empty", "holds no run"), ("missing", "not a directory"), ("file", "not a directory")):
        with pytest.raises(UserError, match=why) as caught:
            find_runs([tmp_path / "run", tmp_path / name])
        assert str(tmp_path / name) in str(caught.value)
