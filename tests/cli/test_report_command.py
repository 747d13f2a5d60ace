"""The command `fedopt report`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typed import FinishedRun, SeededRuns, fedopt, refused
from written import remove_checksums


@pytest.fixture
def several(finished_run: FinishedRun, seeded_runs: SeededRuns, tmp_path: Path) -> Path:
    """A directory of runs at different depths, one of them damaged."""
    shutil.copytree(finished_run.path, tmp_path / "several/plain")
    shutil.copytree(seeded_runs.path, tmp_path / "several/deep/er")
    (tmp_path / "several/deep/er/seed-1/run.json").write_text("{")
    return tmp_path / "several"


def test_report_covers_all_runs_and_names_damaged_ones(several: Path) -> None:
    done = fedopt("report", several, "--title", "Two <runs>")
    assert (done.code, done.out) == (0, f"{several / 'report.html'}\n"), done.err
    _, warning = done.err.splitlines()  # after the heading
    assert warning.startswith("warning: left out: ") and "deep/er/seed-1/run.json" in warning
    page = (several / "report.html").read_text()
    assert "Two &lt;runs&gt;" in page and "<runs>" not in page
    assert fedopt("report", several).code == 0  # again, and the page itself is no run


def test_papers_rule_is_used_if_it_is_requested(finished_run: FinishedRun, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert fedopt("report", finished_run.path, "-o", page, "--rule", "paper").code == 0
    assert "accuracy as mean of all 3 rounds" in page.read_text().replace("\xa0", " ")
    refused(fedopt("report", finished_run.path, "--rule", "papers"), "rule", "did you mean 'paper'?")


def test_report_on_several_directories_is_written_here_or_to_the_output(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    both = (several / "plain", several / "deep/er/seed-2")
    done = fedopt("report", *both)
    assert (done.code, done.out) == (0, "report.html\n")
    done = fedopt("report", *both, "-o", "new/page.html")
    assert (done.code, done.out) == (0, "new/page.html\n")
    assert "fedavg on emnist_cr" in Path("new/page.html").read_text()
    assert Path("report.html").is_file()


def test_impossible_reports_are_refused(several: Path, tmp_path: Path) -> None:
    refused(fedopt("report", tmp_path / "nothing"), str(tmp_path / "nothing"))
    refused(fedopt("report", several, "-o", several), str(several), "name a file")
    (tmp_path / "file").write_text("mine")
    for page in ("file/page.html", "file/deep/page.html"):
        done = fedopt("report", several, "-o", tmp_path / page)
        refused(done, f"{tmp_path / 'file'} is a file", "choose another")
    for page in ("/proc/page.html", "/proc/new/page.html"):  # read-only, even for root
        refused(fedopt("report", several, "-o", page), f"cannot write {page}", "choose another")
    assert (tmp_path / "file").read_text() == "mine"
    refused(fedopt("report", several / "deep/er/seed-1"), "no run can be read", "run.json")
    remove_checksums(several / "plain")
    for name in ("run.json", "config.toml"):
        file = several / "plain" / name
        file.write_text(file.read_text().replace("emnist_cr", "so_lr"))
    refused(
        fedopt("report", several / "plain", several / "deep/er/seed-2"), "emnist_cr (", "so_lr (", "one task"
    )
    assert not (several / "report.html").exists()
