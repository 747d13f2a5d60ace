"""A user's project through the real command line: every command accepts module:name."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typed import fedopt, refused
from user_project import SETTINGS, Project, write_project
from written import remove_checksums

from fedopt.errors import UserCodeError

pytestmark = pytest.mark.xdist_group("user project")  # one process of the test session creates the project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def run(project: Project) -> Path:
    """A run with two worker processes, in its default directory."""
    options = (
        "--algorithm",
        project.algorithm,
        "--set",
        "client.scale=0.5",
        "--rounds",
        "3",
        "--workers",
        "2",
    )
    done = project.fedopt("run", project.task, *options, *SETTINGS, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["task"], summary["algorithm"]) == (project.task, project.algorithm)
    return project.root / summary["run"]


def test_run_directory_has_a_safe_name_and_records_the_references(project: Project, run: Path) -> None:
    folder, name = run.relative_to(project.root / "runs").parts
    assert folder == f"{project.package}.tasks-task"
    assert name.startswith(f"{project.package}.algorithms-scaled-")
    info = json.loads((run / "run.json").read_text())
    assert (info["task"], info["algorithm"], info["status"]) == (project.task, project.algorithm, "done")
    assert info["value"] > 0.5


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project as the current directory of this process, for commands that `typed.fedopt` runs here."""
    monkeypatch.syspath_prepend(project.root)  # so that the path is removed after the test
    monkeypatch.chdir(project.root)
    return project


def test_eval_and_export_need_only_the_run(here: Project, run: Path) -> None:
    done = fedopt("eval", run, "--executor", "serial", "--json")
    assert done.code == 0, done.err
    assert (json.loads(done.out)["examples"], json.loads(done.out)["clients"]) == (60, 1)
    done = fedopt("export", run)
    assert done.code == 0, done.err
    weights = load_file(run / "export" / "model.safetensors")
    assert {name: tuple(value.shape) for name, value in weights.items()} == {"weight": (3, 4), "bias": (3,)}


def test_compare_takes_settings_for_one_reference(project: Project, run: Path) -> None:
    """The comparison's run with scale 0.5 equals the run of its own."""
    algorithms = f"fedavg,{project.algorithm}"
    options = ("--set", f"{project.algorithm}:client.scale=0.5", "--rounds", "3", "--executor", "serial")
    done = project.fedopt(
        "compare",
        project.task,
        "--algorithms",
        algorithms,
        *options,
        *SETTINGS,
        "--out",
        "comparison",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)["runs"][1]
    assert own["x_sha256"] == json.loads((run / "run.json").read_text())["x_sha256"]
    assert Path(own["run"]) == Path("comparison") / f"{project.package}.algorithms-scaled"
    assert (project.root / "comparison" / "report.html").is_file()


def test_sweep_tunes_an_argument_of_the_algorithm(project: Project, run: Path) -> None:
    grid = "client.scale=0.5|1.0"
    options = ("--algorithm", project.algorithm, "--grid", grid, "--rounds", "3", "--workers", "2", *SETTINGS)
    done = project.fedopt("sweep", project.task, *options, "--out", "sweep", "--keep", "all", "--json")
    assert done.returncode == 0, done.stderr
    with open(project.root / "sweep" / "sweep.csv") as file:
        rows = {row["client.scale"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"0.5", "1.0"}
    trial = json.loads((project.root / "sweep" / rows["0.5"]["directory"] / "run.json").read_text())
    assert trial["x_sha256"] == json.loads((run / "run.json").read_text())["x_sha256"]
    assert trial["command"].startswith(f"fedopt run {project.task} --algorithm {project.algorithm}")


def test_errors_have_one_line_and_debug_shows_the_traceback(here: Project) -> None:
    broken = f"{here.package}.broken:task"
    refused(fedopt("run", broken), "NameError", "broken.py, line 3", "--debug")
    with pytest.raises(UserCodeError) as error:
        fedopt("--debug", "run", broken)
    assert isinstance(error.value.__cause__, NameError)
    refused(fedopt("run", here.task, "--data", "synthetic"), "data")


def test_run_of_a_task_object_is_evaluated_and_exported_with_its_reference(
    here: Project, run: Path, tmp_path: Path
) -> None:
    """The run is the same except for the name of its task, as if it had been started from Python."""
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    config = (copied / "config.toml").read_text()
    (copied / "config.toml").write_text(config.replace(f'task = "{here.task}"', 'task = "own"'))
    remove_checksums(copied, task="own")
    refused(fedopt("eval", copied, "--executor", "serial"), "--task")
    done = fedopt("eval", copied, "--task", here.task, "--executor", "serial", "--json")
    assert done.code == 0, done.err
    expected = fedopt("eval", run, "--executor", "serial", "--json")
    assert json.loads(done.out)["accuracy"] == json.loads(expected.out)["accuracy"]
    assert fedopt("export", copied, "--task", here.task).code == 0
