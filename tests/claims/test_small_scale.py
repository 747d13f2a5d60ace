"""The small scale of the reproduction: which entry owns a run, times and results by task."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims.results import EntryResult, read_records
from reproduction_runs import write_run

from claims import plan, runner, small_scale
from fedopt.reproduction.data_sources import find_data_sources
from fedopt.reproduction.plan import RunPlan
from fedopt.reproduction.results import RunReader
from fedopt.reproduction.scales import SMALL
from fedopt.runs.records import RunRecord

CPU = "AVX2"
HOURS = {"performance": {"so_lr": (14, 0.5)}, "all": {"so_lr": (81, 2.0)}}


def make_result(artifact: str, records: list[RunRecord], seconds: float) -> EntryResult:
    return EntryResult(f"reproduction/{artifact}/so_lr", "", [], True, seconds, records)


def records_of(paths: list[str], status: str = "done") -> list[RunRecord]:
    info = {"task": "so_lr", "status": status, "machine": {"cpu": CPU}}
    return [RunRecord(Path("runs/so_lr") / path, info, {}, [], []) for path in paths]


def cells(text: str, row: str) -> dict[str, str]:
    """Return a row of a Markdown table by column."""
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return dict(zip(header, next(cells for cells in rows if cells[0] == row), strict=True))


@pytest.mark.parametrize("task", plan.REPRODUCED)
def test_curves_share_the_runs_of_performance_which_are_part_of_all(task: str) -> None:
    performance = set(small_scale.planned_runs("performance", task))
    assert set(small_scale.planned_runs(f"curves_{task}", task)) == performance
    assert performance < set(small_scale.planned_runs("all", task))


def test_each_run_of_a_reproduction_belongs_to_one_entry() -> None:
    entries = [entry for entry in plan.plan_entries({}) if entry.name.startswith("reproduction/")]
    assert len(entries) == 14 and len({entry.out for entry in entries}) == 1
    path = sorted(small_scale.performance_paths("so_lr"))[0]
    for records, owner in (
        (records_of([path.name]), "reproduction/performance/so_lr"),
        (records_of(["fedavg-of-a-grid"]), "reproduction/all/so_lr"),
    ):
        assert [entry.name for entry in entries if runner.owns(entry, records[0])] == [owner]


def test_times_of_all_contain_those_of_performance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_scale, "TASK_NAMES", {"so_lr": "SO LR"})
    first = make_result("performance", records_of(["a", "b"]), 3600 * 0.6)
    rest = make_result("all", [*records_of(["c"], "diverged"), *records_of(["d"], "running")], 3600 * 1.0)
    row = cells(small_scale.times_by_task({first.name: first}, HOURS, CPU), "`so_lr`")
    assert (row["performance: ended"], row["performance: actual"], row["all: ended"]) == ("2", "0.60", "2")
    assert "all: actual" not in row  # not known
    both = {first.name: first, rest.name: rest}
    row = cells(small_scale.times_by_task(both, HOURS, CPU), "`so_lr`")
    assert (row["all: runs"], row["all: ended"], row["all: actual"]) == ("81", "3", "1.60")
    other = cells(small_scale.times_by_task(both, HOURS, "AVX512"), "`so_lr`")
    assert "performance: actual" not in other  # estimates of one CPU type, times of another


def test_progress_counts_complete_tasks() -> None:
    done = make_result("performance", records_of(["a"]), 3600 * 0.6)
    text = small_scale.progress({done.name: done}, HOURS, CPU)
    assert "`performance` is complete for 1 of 7 tasks; `all` is complete for 0 of 7 tasks" in text
    assert "`performance` took 1.20 times the estimate" in text  # 0.6 of 0.5 hours
    stopped = done._replace(complete=False)
    text = small_scale.progress({done.name: stopped}, HOURS, CPU)
    assert "`performance` is complete for 0 of 7 tasks" in text and "times" not in text


def test_results_are_those_of_the_performance_table(tmp_path: Path) -> None:
    """The runs written by hand have 1 % at round 0; the best run of SCAFFOLD has the smallest loss."""
    tasks = ("so_lr",)
    reader = RunReader(RunPlan(SMALL, find_data_sources(tasks, "synthetic"), tasks), tmp_path)
    for index, run in enumerate(small_scale.planned_runs("performance", "so_lr")):
        loss = 0.1 if index == 7 else 1.0
        write_run(reader, run, 0.3 + index / 100, train_loss=loss)
    result = make_result("performance", read_records(tmp_path), 1.0)
    row = cells(small_scale.results_by_task({result.name: result}), "SO LR")
    assert (row["rounds"], row["before training"], row["FedAdagrad"], row["FedAvg"]) == (
        "100",
        "1.0",
        "30.0",
        "34.0",
    )
    assert row["SCAFFOLD"].startswith("37.0")
