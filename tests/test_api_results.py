"""`fedopt.compare`, `sweep`, `evaluate`, `export` and `report` for built-in and user-defined tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from own_clients import CLIENTS, FEATURES, SETTINGS, TEST, assert_refused, make_task, train
from safetensors.torch import load_file
from user_project import write_project

import fedopt
from fedopt import algorithms
from fedopt.errors import ConfigError, ModelError, RunDirectoryError, UnknownName
from fedopt.formatting import TextTable


def half(*, factor: float = 0.5) -> fedopt.Algorithm:
    """FedAvg with a scaled update."""
    base = algorithms.fedopt(algorithms.sgd(), algorithms.sgd())
    return base._replace(server=lambda state, mean, round: base.server(state, (factor * mean[0],), round))


def test_compare_takes_names_functions_and_objects(tmp_path: Path) -> None:
    task = make_task()
    choices = {"fedavg": {}, half: {"client.factor": 0.25}, half(factor=2.0): {}}
    group = fedopt.compare(task, choices, rounds=2, config=SETTINGS, out=tmp_path / "all")
    assert [result.algorithm for result in group.results] == ["fedavg", "half", "own"]
    alone = train(task, algorithm=half, config={"client.factor": 0.25})
    assert group.results[1].x_sha256 == alone.x_sha256
    assert group.failures == [] and group.report == tmp_path / "all" / "report.html"
    assert group.report.is_file()
    table = group.table()
    assert sorted(row[0] for row in table.rows) == ["fedavg", "half", "own"]
    assert "<td>half</td>" in group._repr_html_() and "| half |" in group._repr_markdown_()
    assert "half" in str(group)


def test_compare_resumes_and_repeats_with_seeds(tmp_path: Path) -> None:
    task, out = make_task(), tmp_path / "seeds"
    first = fedopt.compare(task, ["fedavg"], rounds=2, seeds=range(2), config=SETTINGS, out=out)
    files = [path / "run.json" for path in first.paths]
    before = {path: path.stat().st_mtime_ns for path in files}
    again = fedopt.compare(task, ["fedavg"], rounds=2, seeds=range(2), config=SETTINGS, out=out)
    assert [r.x_sha256 for r in first.results] == [r.x_sha256 for r in again.results]
    assert [path.name for path in again.paths] == ["seed-0", "seed-1"]
    assert {path: path.stat().st_mtime_ns for path in files} == before, "nothing was run again"


def test_compare_refuses_invalid_arguments(tmp_path: Path) -> None:
    def compare(choices: object, **options: object) -> object:
        return fedopt.compare(make_task(), choices, out=tmp_path / "refused", **options)  # type: ignore[arg-type]

    assert_refused(lambda: compare([]), ConfigError, keys=("algorithms",))
    assert_refused(lambda: compare("fedavg"), ConfigError, keys=("algorithms",))
    assert_refused(lambda: compare(["fedavg", "fedavg"]), ConfigError, keys=("algorithms",))
    assert_refused(lambda: compare(["fedavg", "fedyogy"]), UnknownName, name="fedyogy")
    assert_refused(lambda: compare(["fedavg"], seed=1, seeds=[1]), ConfigError, keys=("seed",))
    assert_refused(lambda: compare(["fedavg"], seeds=[]), ConfigError, keys=("seeds",))
    assert_refused(lambda: compare(["fedavg"], seeds=3), ConfigError, keys=("seeds",))
    assert_refused(lambda: fedopt.sweep(make_task(), "fedavg", seeds=3), ConfigError, keys=("seeds",))
    assert_refused(lambda: compare(["fedavg"], config="client.lr=1"), ConfigError, keys=("config",))
    assert_refused(lambda: compare(["fedavg"], rounds=1, config={"rounds": 2}), ConfigError, keys=("rounds",))
    assert not (tmp_path / "refused").exists()


def test_evaluation_of_a_result_and_of_its_directory(tmp_path: Path) -> None:
    """By hand: the accuracy of the trained module on the training data of each client."""
    task = make_task()
    result = train(task, rounds=3, out=tmp_path / "run")
    measured = fedopt.evaluate(result, "train")
    with torch.no_grad():
        hits = {
            name: (result.model(torch.tensor(x)).argmax(1).numpy() == y) for name, (x, y) in CLIENTS.items()
        }
    assert measured.by_client == pytest.approx({name: hit.mean() for name, hit in hits.items()})
    assert measured.value == pytest.approx(np.concatenate(list(hits.values())).mean())
    assert measured.percentiles[50] == pytest.approx(np.median([hit.mean() for hit in hits.values()]))
    assert measured.examples == sum(map(len, hits.values()))
    again = fedopt.evaluate(tmp_path / "run", "train", task=task)
    assert (again.by_client, again.values) == (measured.by_client, measured.values)
    assert_refused(lambda: fedopt.evaluate(tmp_path / "run"), ModelError, what="model")
    assert_refused(lambda: fedopt.evaluate(result, "heldout"), UnknownName, name="heldout")
    assert "percentile" in str(measured) and "<table>" in measured._repr_html_()


@pytest.mark.parametrize("call", [fedopt.evaluate, fedopt.export, fedopt.report, fedopt.load, fedopt.resume])
def test_model_instead_of_a_run_is_refused(call: Callable[..., object]) -> None:
    assert_refused(lambda: call(torch.nn.Linear(2, 2)), ConfigError)


def test_evaluation_on_one_client_has_no_percentiles() -> None:
    evaluation = fedopt.evaluate(train(make_task()))  # the test set is one client
    assert [row[0] for row in evaluation.table().rows] == ["all examples"]
    assert str(evaluation).endswith("60 examples of 1 client")


def test_export_of_a_result_and_of_its_directory(tmp_path: Path) -> None:
    task = make_task()
    result = train(task, out=tmp_path / "run")
    for files in (fedopt.export(result), fedopt.export(tmp_path / "run", tmp_path / "again", task=task)):
        weights = load_file(files[0])
        assert torch.equal(weights["weight"], result.model.weight)
    assert (tmp_path / "run" / "export" / "MODEL_CARD.md").is_file()
    assert_refused(lambda: fedopt.export(train(task)), RunDirectoryError, path=None)


def test_report_takes_results_and_directories(tmp_path: Path) -> None:
    task = make_task()
    one = train(task, out=tmp_path / "one")
    train(task, algorithm="fedadam", out=tmp_path / "two")
    page = fedopt.report([one, tmp_path / "two"], tmp_path / "page.html", title="Both")
    assert page == tmp_path / "page.html" and "Both" in page.read_text()
    assert fedopt.report(one) == tmp_path / "one" / "report.html"


def test_sweep_of_objects_runs_in_this_process(tmp_path: Path) -> None:
    task = make_task()
    options = {"rounds": 2, "config": SETTINGS, "out": tmp_path / "sweep", "select": "accuracy"}
    tuned = fedopt.sweep(task, [half, "fedavg"], {"client_lr": [-3, -1], "client.epochs": [1, 2]}, **options)
    assert set(tuned.best) == {"half", "fedavg"}
    best = tuned.best["half"]
    assert set(best.settings) == {"client.lr", "client.epochs"}
    alone = train(task, algorithm=half, config=best.settings)
    assert best.value == pytest.approx(alone.value)
    trials = list((tmp_path / "sweep" / "trials").iterdir())
    assert len(trials) == 8
    assert "half" in str(tuned) and "<td>half</td>" in tuned._repr_html_()
    before = {path: (path / "run.json").stat().st_mtime_ns for path in trials}
    again = fedopt.sweep(task, [half, "fedavg"], {"client_lr": [-3, -1], "client.epochs": [1, 2]}, **options)
    assert again.best == tuned.best
    assert {path: (path / "run.json").stat().st_mtime_ns for path in trials} == before


def test_sweeps_of_two_tasks_with_one_name_use_their_own_data(tmp_path: Path) -> None:
    """The data of a task object is not taken from an earlier sweep in this process."""
    other = {name: (x + 1, y) for name, (x, y) in CLIENTS.items()}
    values = []
    for number, clients in enumerate((CLIENTS, other)):
        task = make_task(clients=clients)
        options = {"rounds": 1, "config": SETTINGS, "out": tmp_path / str(number), "keep": "all"}
        tuned = fedopt.sweep(task, "fedavg", {"client_lr": [-1]}, **options)
        best = tuned.best["fedavg"]
        values.append(best.score)
        assert best.score == pytest.approx(train(task, rounds=1, config={"client.lr": 0.1}).train_loss)
    assert values[0] != values[1]


def test_importable_objects_are_tuned_by_their_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    from fedopt.api.tuning import _by_reference
    from fedopt.tuning.request import SweepRequest

    project = write_project(tmp_path, 1000)
    monkeypatch.syspath_prepend(tmp_path)
    tasks = import_module(f"{project.package}.tasks")
    own = import_module(f"{project.package}.algorithms")
    request = _by_reference(SweepRequest(tasks.ready, [own.scaled, "fedavg"]))
    assert (request.task, request.algorithms) == (
        f"{project.package}.tasks:ready",
        [project.algorithm, "fedavg"],
    )
    local = _by_reference(SweepRequest(make_task(), [own.scaled]))
    assert not local.is_importable and local.algorithms == [own.scaled]


def test_result_is_shown_as_a_table() -> None:
    result = train(make_task(), rounds=2)
    assert [row[0] for row in result.table().rows] == ["0", "1", "2"]
    assert result._repr_html_().startswith("<table>")
    assert str(result).startswith("own, fedavg, 2 rounds, seed 0: accuracy ")
    table = TextTable("a < b", ["name", "x|y"], [["<i>", "1\n2"]], "note")
    assert "&lt;i&gt;" in table._repr_html_() and "<i>" not in table._repr_html_()
    lines = table._repr_markdown_().splitlines()
    assert lines[2:5] == ["| name | x\\|y |", "| --- | ---: |", "| <i> | 1 2 |"]
    assert str(table).splitlines() == ["a < b", "name  x|y", "<i>   1 2", "note"]


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    train(make_task())
    assert capsys.readouterr().err == ""
    train(make_task(), progress=True)
    assert "round 2/2" in capsys.readouterr().err


def test_contract_types_are_public() -> None:
    steps: list[fedopt.Step] = []
    train(make_task(), callback=steps.append)
    assert isinstance(steps[0], fedopt.Step)
    assert fedopt.Round(0, 0.1, 1.0, 2, 6).eta_l == 0.1
    assert hasattr(fedopt.Work, "gradient") and FEATURES == len(TEST[0][0])
