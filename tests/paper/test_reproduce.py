"""Reproductions from the first run to the page: resuming, errors, disk space, checkpoints."""

from __future__ import annotations

import csv
import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from reproduction_runs import TINY, make_reader, write_images, write_run, write_runs

from fedopt.engine.executors import ExecutorOptions
from fedopt.errors import UserError
from fedopt.tuning.runner import run_trials
from fedopt.tuning.trials import Trial
from fedopt_paper import reproduce as reproduce_module
from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.cost_estimate import StepTimes
from fedopt_paper.reproduce import ReproduceOptions, render_page, reproduce
from fedopt_paper.scales import PAPER, SMALL

pytestmark = pytest.mark.xdist_group("reproduction")  # one process of the test session reproduces
Usage = namedtuple("Usage", "total used free")


def options_for(artifact: str, out: Path, **changes: object) -> ReproduceOptions:
    options = ReproduceOptions(artifact, TINY, out, "synthetic", "so_lr", ExecutorOptions(workers=1))
    return replace(options, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real reproduction of one artifact of one task."""
    out = tmp_path_factory.mktemp("reproduction") / "tiny"
    (outcome,) = reproduce(options_for("curves_so_lr", out))
    assert (outcome.runs, outcome.done + outcome.diverged) == (9, 9)
    return out


def test_reproduction_writes_every_file_and_links_to_its_runs(reproduction: Path) -> None:
    directory = reproduction / "curves_so_lr"
    files = {path.name for path in directory.iterdir()}
    assert files == {"figure.svg", "figure.pdf", "figure.png", "numbers.csv", "table.md", "section.html"}
    assert (directory / "figure.png").read_bytes().startswith(b"\x89PNG")
    texts = [
        "".join(element.itertext())
        for element in ElementTree.parse(directory / "figure.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    assert "SO LR (synthetic)" in texts and "scale: tiny, 2 rounds" in texts  # text stays text
    assert b"/FontFile2" in (directory / "figure.pdf").read_bytes()  # embedded TrueType fonts
    lines = list(csv.DictReader((directory / "numbers.csv").read_text().splitlines()))
    numbers = [line for line in lines if line["table"] != "curve"]
    for line in numbers:
        run = directory / line["run"]
        info = json.loads((run / "run.json").read_text())
        assert float(line["ours (synthetic)"]) == pytest.approx(
            100 * info["last"]
        )  # of the last tenth of the rounds
        assert info["algorithm"] == line["column"].lower()
        assert not (run / "checkpoints").exists()  # this scale keeps none
    assert [line["paper"] for line in numbers] == ["67.1", "65.8", "65.9", "36.9", "30", "curve only"]
    rounds = [line["row"] for line in lines if line["table"] == "curve" and line["column"] == "FedAdam"]
    assert rounds == ["0", "1", "2"]
    table = (directory / "table.md").read_text()
    assert "| SO LR | ours (synthetic) |" in table and "- Two rounds." in table
    page = (reproduction / "index.html").read_text()
    assert "http:" not in page.replace("http://www.w3.org", "") and "https:" not in page
    assert "synthetic data" in page and "--tasks so_lr" in page


def test_same_command_repeats_no_run_and_writes_the_same_figure(reproduction: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (reproduction / "runs").rglob("run.json")}
    figure = (reproduction / "curves_so_lr" / "figure.svg").read_bytes()
    reproduce(options_for("curves_so_lr", reproduction))
    after = {path: path.stat().st_mtime_ns for path in (reproduction / "runs").rglob("run.json")}
    assert after == before
    assert (reproduction / "curves_so_lr" / "figure.svg").read_bytes() == figure


def test_another_artifact_shares_the_runs_and_is_added_to_the_page(reproduction: Path) -> None:
    before = sorted((reproduction / "runs").rglob("run.json"))
    (outcome,) = reproduce(options_for("performance", reproduction))
    assert (outcome.runs, outcome.done + outcome.diverged) == (9, 9)
    assert sorted((reproduction / "runs").rglob("run.json")) == before
    page = (reproduction / "index.html").read_text()
    assert page.index('<section id="performance"') < page.index('<section id="curves_so_lr"')


def test_commands_for_single_tasks_build_one_page(tmp_path: Path) -> None:
    """The second command names another task. Its tables contain both, and it runs only its own task."""
    reader = make_reader(tmp_path, "so_lr")
    write_runs(reader, ARTIFACTS["so_test"].runs(reader.plan), lambda run: 0.5)
    nwp = make_reader(tmp_path, "so_nwp")
    write_runs(nwp, ARTIFACTS["so_test"].runs(nwp.plan)[1:], lambda run: 0.25)  # one of five is missing
    started: list[str] = []
    (outcome,) = reproduce(options_for("so_test", tmp_path, tasks="so_lr"), started.append)
    assert not any("so_nwp" in message for message in started)  # nothing of it runs
    assert (outcome.runs, outcome.done) == (10, 9)
    lines = list(csv.DictReader((tmp_path / "so_test" / "numbers.csv").read_text().splitlines()))
    shown = [(line["row"], line["ours (synthetic)"]) for line in lines]
    assert shown == [("SO NWP", ""), *[("SO NWP", "25")] * 4, *[("SO LR", "50")] * 5]
    assert "--tasks so_nwp,so_lr" in (tmp_path / "so_test" / "table.md").read_text()


@pytest.mark.parametrize("artifact", ["all", "performance", "heatmaps_so_lr"])
def test_tasks_that_tables_omit_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artifact: str
) -> None:
    """Without sweeps for CIFAR-10, `all` has no heat maps of it. The others do not show sweeps of it."""
    monkeypatch.setattr(reproduce_module, "_run_task", lambda *_: None)
    messages: list[str] = []
    scale = replace(TINY, costly_widths={"cifar10": 1})
    reproduce(options_for(artifact, tmp_path, scale=scale, tasks="cifar10,so_lr"), messages.append)
    message = "scale tiny has no sweeps for cifar10: heat maps and tuning tables omit them"
    assert (message in messages) == (artifact == "all")
    assert not (tmp_path / "heatmaps_cifar10").exists()
    assert (tmp_path / ("performance" if artifact == "all" else artifact)).exists()


def test_page_escapes_text_from_the_command(tmp_path: Path) -> None:
    out = tmp_path / "<b>&amp; 'quoted'"
    reproduce(options_for("datasets", out))
    page = (out / "index.html").read_text()
    assert "<b>" not in page and "&lt;b&gt;&amp;amp;" in page


def test_damaged_run_is_logged_and_skipped(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "so_lr")
    runs = ARTIFACTS["so_test"].runs(reader.plan)
    write_runs(reader, runs, lambda run: 0.5)
    damaged = reader.trial(runs[1]).path
    (damaged / "metrics.jsonl").write_text("[]\n")
    messages: list[str] = []
    (outcome,) = reproduce(options_for("so_test", tmp_path), messages.append)
    assert outcome.done == 4
    assert str(damaged / "metrics.jsonl") in messages[0] and f"remove {damaged}" in messages[0]
    lines = list(csv.DictReader((tmp_path / "so_test" / "numbers.csv").read_text().splitlines()))
    assert [line["state"] for line in lines] == ["", "damaged", "", "", ""]


def test_artifacts_are_written_before_an_error_is_raised(tmp_path: Path) -> None:
    store = write_images(tmp_path / "one", "emnist", [[0, 61]])  # fewer clients than the cohort
    out = tmp_path / "out"
    with pytest.raises(UserError, match="clients_per_round"):
        reproduce(options_for("curves_emnist_cr", out, data=str(store), tasks=None))
    assert "85.6" in (out / "curves_emnist_cr" / "table.md").read_text()
    assert (out / "index.html").is_file()


def test_command_and_page_contain_seeds_and_variant(tmp_path: Path) -> None:
    options = options_for("datasets", tmp_path, variant="as_printed", seeds=(1, 2))
    assert options.command("tau").endswith(f"--variant as_printed --seeds 1,2 --out {tmp_path}")
    reproduce(options)
    page = (tmp_path / "index.html").read_text()
    assert "variant=as_printed" in page and "as printed" in page
    assert "<code>variant=as_run</code>" in render_page(tmp_path, TINY, "as_run")


# -- disk space and checkpoints


def test_hook_is_called_when_each_trial_ends_and_for_finished_ones(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "so_lr")
    finished, *others = reader.plan.sweep("so_lr", "fedavg")[:3]
    write_run(reader, finished)
    trials = [reader.trial(run) for run in (finished, *others)]
    (trials[0].path / "checkpoints").mkdir()
    calls: list[tuple[Trial, int]] = []

    def after(trial: Trial) -> None:
        assert json.loads((trial.path / "run.json").read_text())["status"] == "done"
        calls.append((trial, sum((t.path / "checkpoints").exists() for t in trials)))
        shutil.rmtree(trial.path / "checkpoints")

    run_trials(trials, executor=ExecutorOptions(workers=1), after=after)
    assert [trial for trial, _ in calls] == trials
    assert calls[0][1] == 1 and all(count <= 2 for _, count in calls)  # its own, and at most the next one's
    assert not any((trial.path / "checkpoints").exists() for trial in trials)


@pytest.mark.parametrize("keeps", [True, False])
def test_leftover_checkpoints_of_finished_runs_are_removed(tmp_path: Path, keeps: bool) -> None:
    scale = replace(TINY, keep_checkpoints=keeps)
    reader = make_reader(tmp_path, "so_lr", scale=scale)
    runs = ARTIFACTS["curves_so_lr"].runs(reader.plan)
    write_runs(reader, runs, lambda run: 0.5)
    for run in runs:
        for part in ("checkpoints/000002", "clients"):
            (reader.trial(run).path / part).mkdir(parents=True)
    damaged = reader.plan.sweep("so_lr", "scaffold")[3]
    (reader.trial(damaged).path / "run.json").write_text("{")
    reproduce(options_for("curves_so_lr", tmp_path, scale=scale))
    published = {run for run in runs if run.algorithm != "scaffold"}
    for part in ("checkpoints", "clients"):
        remaining = {run for run in runs if (reader.trial(run).path / part).exists()}
        assert remaining == {damaged} | (published if keeps else set())


def test_runs_that_do_not_fit_on_the_disk_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = make_reader(tmp_path, "so_lr")
    finished = [
        reader.plan.published("so_lr", name) for name in ("fedadagrad", "fedadam", "fedavgm", "fedavg")
    ]
    write_runs(reader, finished, lambda run: 0.5)  # FedYogi is left to run
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 1000))
    messages: list[str] = []
    (outcome,) = reproduce(options_for("performance", tmp_path), messages.append)
    assert (outcome.runs, outcome.done) == (9, 5)
    assert any("4 runs of so_lr scaffold" in message and "has 1.0 KB" in message for message in messages)
    assert "| not enough disk space |" in (tmp_path / "performance" / "table.md").read_text()


def test_paper_scale_logs_its_estimated_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reproduce_module, "measure_step_times", lambda tasks: {task: StepTimes(0.0, 0.0) for task in tasks}
    )
    reader = make_reader(tmp_path, "so_lr", scale=PAPER)
    runs = ARTIFACTS["so_test"].runs(reader.plan)
    messages: list[str] = []
    reproduce_module._log_estimate(
        reader, runs, options_for("so_test", tmp_path, scale=PAPER), messages.append
    )
    # five runs of 0.6 seconds to start and nothing else
    assert len(messages) == 1 and messages[0].startswith("about 3 s on this machine for 5 runs;")
    reproduce_module._log_estimate(
        reader, runs, options_for("so_test", tmp_path, scale=SMALL), messages.append
    )
    assert len(messages) == 1


def test_estimate_for_a_ray_cluster_names_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reproduce_module, "measure_step_times", lambda tasks: {task: StepTimes(0.0, 0.0) for task in tasks}
    )
    reader, messages = make_reader(tmp_path, "so_lr", scale=PAPER), list[str]()
    options = options_for("so_test", tmp_path, scale=PAPER)
    options = replace(options, executor=ExecutorOptions("ray", workers=3))
    reproduce_module._log_estimate(reader, ARTIFACTS["so_test"].runs(reader.plan), options, messages.append)
    # five runs of 0.6 seconds to start and nothing else
    assert messages[0].startswith("about 1 s on 3 cores like those of this machine for 5 runs;")


@pytest.mark.parametrize(
    ("free", "expected"),
    [  # 1,500 rounds of SCAFFOLD need 298 GB; without rounds, a run takes 0.6 s to start
        (1000, "about 2 s on this machine for 6 runs (3 do not fit on the disk);"),
        (400 * 10**9, "about 4 s on this machine for 9 runs;"),  # one SCAFFOLD at a time, others on two cores
        (10**13, "about 3 s on this machine for 9 runs;"),
    ],
)
def test_estimate_counts_only_runs_that_fit_on_the_disk(
    free: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        reproduce_module, "measure_step_times", lambda tasks: {task: StepTimes(0.0, 0.0) for task in tasks}
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**14, 0, free))
    reader, messages = make_reader(tmp_path, "so_lr", scale=PAPER), list[str]()
    runs = [
        reader.plan.sweep("so_lr", name)[n] for name in ("fedavg", "fedadam", "scaffold") for n in range(3)
    ]
    options = options_for("performance", tmp_path, scale=PAPER)
    options = replace(options, executor=replace(options.executor, workers=2))
    reproduce_module._log_estimate(reader, runs, options, messages.append)
    assert messages[0].startswith(expected)
