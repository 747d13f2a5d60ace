"""The small scale of the reproduction: times and results by task."""

from __future__ import annotations

from pathlib import Path

from claims.results import EntryResult, read_records
from reproduction_runs import write_run

from claims import small_scale
from fedopt.reproduction.data_sources import find_data_sources
from fedopt.reproduction.plan import RunPlan
from fedopt.reproduction.results import RunReader
from fedopt.reproduction.scales import SMALL
from fedopt.runs.records import RunRecord

CPU = "AVX2"
HOURS = {"so_lr": (3, 0.5)}


def make_result(records: list[RunRecord], complete: bool = True) -> EntryResult:
    return EntryResult(small_scale.ENTRY, "", [], complete, 3600 * 0.6, records)


def make_records(*statuses: str) -> list[RunRecord]:
    """Return records of runs that took 0.1 hours each."""
    machine = {"cpu": CPU}
    return [
        RunRecord(
            Path(str(n)), {"task": "so_lr", "status": s, "machine": machine, "seconds": 360}, {}, [], []
        )
        for n, s in enumerate(statuses)
    ]


def cells(text: str, row: str) -> dict[str, str]:
    """Return a row of a Markdown table by column."""
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return dict(zip(header, next(cells for cells in rows if cells[0] == row), strict=True))


def test_times_are_shown_when_all_runs_of_a_task_have_ended() -> None:
    result = make_result(make_records("done", "done", "diverged"))
    row = cells(small_scale.times_by_task(result, HOURS, CPU), "`so_lr`")
    assert (row["runs"], row["ended"], row["diverged"]) == ("3", "3", "1")
    assert (row["estimate"], row["run time"]) == ("0.50", "0.30")  # three runs of 0.1 hours
    result = make_result(make_records("done", "done", "running"))
    row = cells(small_scale.times_by_task(result, HOURS, CPU), "`so_lr`")
    assert row["ended"] == "2" and "run time" not in row


def test_run_times_of_another_cpu_type_are_left_out() -> None:
    result = make_result(make_records("done", "done", "done"))
    assert "run time" not in cells(small_scale.times_by_task(result, HOURS, "AVX512"), "`so_lr`")


def test_progress_compares_the_cpu_time_with_the_estimate() -> None:
    records = make_records("done", "done", "diverged")
    text = small_scale.progress(make_result(records), HOURS, CPU)
    assert text == "3 of 3 runs have ended; they took 0.60 core hours of CPU time, 1.20 times the estimate"
    text = small_scale.progress(make_result(records[:1], complete=False), HOURS, CPU)
    assert text == "1 of 3 runs have ended"
    assert small_scale.progress(make_result(records), HOURS, "AVX512") == "3 of 3 runs have ended"


def test_results_are_those_of_the_performance_table(tmp_path: Path) -> None:
    """The runs written by hand have 1 % at round 0; the best run of SCAFFOLD has the smallest loss."""
    tasks = ("so_lr",)
    reader = RunReader(RunPlan(SMALL, find_data_sources(tasks, "synthetic"), tasks), tmp_path)
    for method, value in (("fedadagrad", 0.30), ("fedavg", 0.34)):
        write_run(reader, reader.plan.published("so_lr", method), value)
    for index, run in enumerate(reader.plan.sweep("so_lr", "scaffold")):
        write_run(reader, run, 0.35 + index / 100, train_loss=0.1 if index == 2 else 1.0)
    row = cells(small_scale.results_by_task(make_result(read_records(tmp_path))), "SO LR")
    assert (row["rounds"], row["before training"]) == ("100", "1.0")
    assert (row["FedAdagrad"], row["FedAvg"], row["SCAFFOLD"][:4]) == ("30.0", "34.0", "37.0")
