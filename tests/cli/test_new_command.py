"""`fedopt new`: the created project is tested with its own tests and with the commands of its README."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typed import fedopt, refused


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("new") / "spiral-study"
    done = fedopt("new", directory)
    assert (done.code, done.err) == (0, "") and str(directory) in done.out
    return directory


def test_project_has_a_task_an_algorithm_a_test_and_a_readme(project: Path) -> None:
    files = sorted(str(file.relative_to(project)) for file in project.rglob("*") if file.is_file())
    package = ["__init__.py", "algorithms.py", "tasks.py"]
    assert files == ["README.md", *(f"spiral_study/{name}" for name in package), "test_project.py"]
    assert not [file for file in files if "PACKAGE" in (project / file).read_text()]


def test_tests_of_the_project_pass(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_commands_of_the_readme_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    text = (project / "README.md").read_text().replace("--rounds 40", "--rounds 3")  # its tests run 40
    lines = [line.strip() for line in text.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("fedopt ")]
    assert [words[0] for words in commands] == ["run", "resume", "eval", "export", "compare", "sweep"]
    for words in commands:
        done = fedopt(*words)
        assert done.code == 0, (words, done.err)
    for file in (
        "runs/feddyn/export/model.safetensors",
        "runs/comparison/report.html",
        "runs/sweep/sweep.csv",
    ):
        assert (project / file).is_file()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    refused(fedopt("new", tmp_path), str(tmp_path), "choose another")
    refused(fedopt("new", tmp_path / "thesis.tex"), "choose another")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_name_of_an_installed_module_is_refused(tmp_path: Path) -> None:
    refused(fedopt("new", tmp_path / "torch"), "torch", "choose another")
    assert not (tmp_path / "torch").exists()
