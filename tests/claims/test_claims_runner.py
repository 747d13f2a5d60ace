"""The runner executes what is missing, and results are stored as the analysis needs them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from claims.entry import Entry
from claims.results import EntryResult

import fedopt
from claims import __main__ as program
from claims import plan, results, runner, tags_plan
from fedopt.reports.summary import run_numbers
from fedopt.runs.records import read_run

SMALL = ("run", "synthetic_lr", "--rounds", "8", "--executor", "serial", "--set", "data.clients=4")
SETTINGS = ("--set", "clients_per_round=2", "--set", "checkpoint.every=2")
ENTRY = Entry("test/small", (*SMALL, *SETTINGS), 5, kill_at=3)


@pytest.fixture
def only_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of one small run, with its own directory of results."""
    stored = tmp_path / "results"
    monkeypatch.setattr(runner, "plan_entries", lambda found: [ENTRY])
    monkeypatch.setattr(runner, "load_results", lambda: results.load_results(stored))
    monkeypatch.setattr(runner, "store_result", lambda result: results.store_result(result, stored))
    return stored


@pytest.mark.slow
def test_runner_resumes_a_killed_run_and_stores_its_numbers(only_entry: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    assert runner.run_missing(tmp_path, "", lines.append) == 0
    result = results.load_results(only_entry)["test/small"]
    (record,), original = result.records, read_run(tmp_path / ENTRY.out)
    assert len(original.info["segments"]) == 2  # it was killed
    settings = {"data.clients": 4, "clients_per_round": 2}
    alone = fedopt.run("synthetic_lr", rounds=8, executor="serial", out=tmp_path / "alone", config=settings)
    assert record.info["x_sha256"] == alone.x_sha256
    assert result.complete and result.command == shlex.join(ENTRY.command())
    assert record.test[-1]["accuracy"] == pytest.approx(original.test[-1]["accuracy"], rel=1e-6)
    assert run_numbers(record, None).train_loss == pytest.approx(original.info["train_loss"], rel=1e-6)
    assert results.mean_train_loss(record, 8) == pytest.approx(original.info["train_loss"], rel=1e-6)
    first = sum(line["loss"] for line in original.train[:2]) / 2
    assert results.halving_rungs(8)[0] == 2 and results.mean_train_loss(record, 2) == pytest.approx(first)
    lines.clear()
    assert runner.run_missing(tmp_path, "", lines.append) == 0
    assert lines == []  # a complete entry does not run again
    assert runner.verify(ENTRY._replace(kill_at=0), tmp_path, lines.append)
    assert lines[-1] == "test/small: 1 of 1 models are identical to the bit"


def test_entry_that_another_runner_has_locked_is_skipped(only_entry: Path, tmp_path: Path) -> None:
    descriptor = runner.lock_entry(ENTRY.out, tmp_path)
    assert descriptor is not None
    lines: list[str] = []
    assert runner.run_missing(tmp_path, "", lines.append) == 0
    assert lines == ["test/small: another runner works on it"]
    assert not (tmp_path / ENTRY.out).exists()


def test_missing_data_is_reported_with_the_command_that_imports_it(
    only_entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_data = ENTRY._replace(arguments=(*ENTRY.arguments, "--data", "data/digits"))
    monkeypatch.setattr(runner, "plan_entries", lambda found: [needs_data])
    lines: list[str] = []
    runner.run_missing(tmp_path, "", lines.append)
    command = f"fedopt data import emnist PATH --to {tmp_path / 'data/digits'}"
    assert len(lines) == 1 and command in lines[0]
    assert not runner.verify(needs_data, tmp_path, lines.append)
    assert len(lines) == 2 and command in lines[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "nothing"], "no entry matches 'nothing'; `list` shows all names"),
        (["verify", "--only", "["], "'[' is not a regular expression"),
        (["independent", "--files", "absent"], "no directory at absent"),
        (["independent"], "independent needs --files DIR"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["claims", *arguments])
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == 2 and message in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_stored_results_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["claims", "run", "--only", "repeat/so_lr", "--work", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    assert program.main() == 0
    assert "nothing to run: all 5 results are stored" in capsys.readouterr().out


def test_long_runs_use_the_rates_with_the_smallest_training_loss() -> None:
    """The plan waits for complete grids; then the best points of each method follow."""
    stored = results.load_results()
    grids = (f"{tags_plan.GRID}_coarse", f"{tags_plan.GRID}_middle", tags_plan.TAU)
    partial = {name: stored[name] for name in grids[:1]}
    assert not [e for e in plan.plan_entries(partial) if e.name.startswith("so_lr/full/fedavg_")]
    empty = EntryResult("", "", [], True, None, [])
    complete = {grids[0]: stored[grids[0]], grids[1]: empty, grids[2]: empty}
    first = next(e for e in plan.plan_entries(complete) if e.name.startswith("so_lr/full/fedavg_"))
    losses = {
        (record.config["client.lr"], record.config["server.lr"]): record.info["train_loss"]
        for record in stored[grids[0]].done
        if record.label == "fedavg"
    }
    client, server = min(losses, key=lambda rates: losses[rates])
    assert f"client.lr={client}" in first.arguments and f"server.lr={server}" in first.arguments
