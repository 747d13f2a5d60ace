"""References to a user's tasks and algorithms: `module:name`."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from user_project import Project, write_project

import fedopt
from fedopt.algorithms import find_algorithm, keywords
from fedopt.errors import ConfigError, UnknownName, UserCodeError
from fedopt.references import file_name
from fedopt.runs.prepare import RunRequest
from fedopt.tasks import TASKS, find_task

_numbers = count(1)
SMALL = {"clients_per_round": 3, "client.batch_size": 5, "rounds": 2}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = write_project(tmp_path, next(_numbers))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # so that the path is removed after the test
    return project


def config_of(task: Any, algorithm: Any = "fedavg", **settings: Any) -> dict[str, Any]:
    return RunRequest(task, algorithm, SMALL | settings).prepare().config.document()


def test_task_is_an_object_or_a_function(project: Project) -> None:
    for name in ("task", "ready"):
        reference = f"{project.package}.tasks:{name}"
        task = find_task(reference)
        assert task.name == reference
        assert find_task(reference) is task, "the function is called once"
        assert config_of(reference)["task"] == reference
    assert find_task(task) is task
    assert find_task("so_lr") is TASKS["so_lr"]


@pytest.mark.parametrize(
    ("reference", "error_type", "words"),
    [
        ("no_such_package.tasks:task", UnknownName, ["no_such_package", "directory"]),
        ("{p}.task:task", UnknownName, ["did you mean {p}.tasks?"]),
        ("{p}.tasks:tasks", UnknownName, ["did you mean 'task'"]),
        ("{p}.tasks:", UnknownName, ["module:name"]),
        (":task", UnknownName, ["module:name"]),
        ("{p}/tasks.py:task", UnknownName, ["{p}.tasks:task"]),
        ("{p}.broken:task", UserCodeError, ["NameError", "broken.py, line 3"]),
        ("{p}.invalid:task", UserCodeError, ["SyntaxError", "invalid.py, line 1"]),
        ("{p}.missing_package:task", UserCodeError, ["a_package_that_is_not_installed"]),
        ("{p}.tasks:number", UserCodeError, ["int", "fedopt.own_task"]),
        ("{p}.tasks:needs", UserCodeError, ["'argument'", "default"]),
        ("{p}.tasks:fails", UserCodeError, ["the disk is empty", "tasks.py"]),
        ("{p}.tasks:network", UserCodeError, ["Linear"]),
    ],
)
def test_task_that_cannot_be_used_is_refused_in_one_line(
    project: Project, reference: str, error_type: type[fedopt.UserError], words: list[str]
) -> None:
    with pytest.raises(error_type) as error:
        find_task(reference.format(p=project.package))
    assert "\n" not in str(error.value)
    for word in words:
        assert word.format(p=project.package) in str(error.value)


@pytest.mark.parametrize("name", ["not_an_algorithm", "nothing", "__name__"])
def test_algorithm_that_cannot_be_used_is_refused(project: Project, name: str) -> None:
    request = RunRequest("so_lr", f"{project.package}.algorithms:{name}")
    with pytest.raises((UserCodeError, UnknownName)) as error:
        request.prepare().problem.algorithm()
    assert "\n" not in str(error.value) and name in str(error.value)


def test_keyword_arguments_of_an_algorithm_are_configuration_keys(project: Project) -> None:
    assert config_of(project.task, project.algorithm)["client"]["scale"] == 1.0
    assert config_of(project.task, project.algorithm, **{"client.scale": 2})["client"]["scale"] == 2.0
    with pytest.raises(ConfigError) as error:
        config_of(project.task, project.algorithm, **{"client.scale": "large"})
    assert error.value.keys == ("client.scale",)
    with pytest.raises(ConfigError) as error:
        config_of(project.task, project.algorithm, **{"client.scales": 1.0})
    assert error.value.keys == ("client.scales",) and "client.scale" in str(error.value)
    with pytest.raises(ConfigError) as error:
        config_of(project.task, f"{project.package}.algorithms:takes_reserved_name")
    assert error.value.keys == ("client.batch_size",)


def test_only_numbers_strings_and_booleans_are_keys() -> None:
    def build(positional=1, *, alpha=0.1, steps_: int = 2, name: Unknown = "a", table=None, shape=(1, 2)):  # noqa: F821
        raise AssertionError("not called")

    assert keywords(find_algorithm(build).build) == {"alpha": 0.1, "steps_": 2, "name": "a"}
    assert "alpha" not in keywords(find_algorithm(partial(build, alpha=0.2)).build), (
        "a bound argument is fixed"
    )


def test_reference_equals_the_objects(project: Project) -> None:
    """By reference, as objects, and with the option given by partial: the same model."""
    task, scaled = find_task(project.task), find_algorithm(project.algorithm).build.algorithm
    config = SMALL | {"client.scale": 0.5}
    one = fedopt.run(project.task, algorithm=project.algorithm, config=config)
    two = fedopt.run(task, algorithm=scaled, config=config)
    three = fedopt.run(task, algorithm=partial(scaled, scale=0.5), config=SMALL)
    four = fedopt.run(task, algorithm=f"{project.package}.algorithms:constant", config=SMALL)
    assert len({result.x_sha256 for result in (one, two, three, four)}) == 1
    assert one.x_sha256 != fedopt.run(task, algorithm=scaled, config=SMALL).x_sha256
    assert three.algorithm == "scaled(scale=0.5)"


def test_worker_processes_import_the_project(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedopt.runs.execute.SMALL_RUN_SECONDS", 0.0)
    options = {"algorithm": project.algorithm, "config": SMALL}
    parallel = fedopt.run(project.task, executor="processes", workers=1, **options)
    assert parallel.x_sha256 == fedopt.run(project.task, **options).x_sha256


def test_run_of_a_reference_can_be_loaded_without_a_model(project: Project, tmp_path: Path) -> None:
    result = fedopt.run(project.task, algorithm=project.algorithm, config=SMALL, out=tmp_path / "run")
    loaded = fedopt.load(tmp_path / "run")
    assert (loaded.x == result.x).all()
    assert loaded.config.document()["client"]["scale"] == 1.0


def test_data_of_a_built_in_task_is_refused_for_an_own_task(project: Project) -> None:
    for task in (project.task, find_task(project.task)):
        with pytest.raises(ConfigError) as error:
            RunRequest(task, data="synthetic").prepare()
        assert error.value.keys == ("data",)


def test_file_names_have_no_special_characters() -> None:
    assert file_name("emnist_cr") == "emnist_cr"
    assert file_name("a.b:c") == "a.b-c"
    assert file_name("f('x', y=[1, 2])") == "f-x-y-1-2"
    assert file_name("../../etc") == "etc"
    assert file_name("::") == "own"
