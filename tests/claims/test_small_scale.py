"""The small scale of the reproduction: times and results by task."""

from __future__ import annotations

from pathlib import Path

from claims.results import EntryResult, read_records
from reproduction_runs import write_run

from claims import small_scale
from fedopt.runs.records import RunRecord
from fedopt_paper.data_sources import find_data_sources
from fedopt_paper.plan import RunPlan
from fedopt_paper.results import RunReader
from fedopt_paper.scales import SMALL

CPU = "AVX2"
HOURS = {
    "so_lr": (81, 0.5)
}  # 9 pairs of rates; three adaptive methods have two values of tau, three have none


def make_result(records: list[RunRecord]) -> EntryResult:
    return EntryResult(small_scale.ENTRY, "", [], True, 3600 * 0.6, records)


def make_records(count: int, diverged: int = 0) -> list[RunRecord]:
    """Return records of the first planned runs, which took 0.01 hours each. Some have diverged."""
    reader = RunReader(small_scale._plan(), Path())
    runs = small_scale.planned_runs("so_lr")[:count]
    return [
        make_record(reader.trial(run).path, "diverged" if n < diverged else "done")
        for n, run in enumerate(runs)
    ]


def make_record(path: Path, status: str, rounds: int = 100) -> RunRecord:
    info = {"task": "so_lr", "status": status, "machine": {"cpu": CPU}, "seconds": 36}
    return RunRecord(path, info, {}, [{"round": rounds, "loss": 1.0}], [])


def cells(text: str, row: str) -> dict[str, str]:
    """Return a row of a Markdown table by column."""
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return dict(zip(header, next(cells for cells in rows if cells[0] == row), strict=True))


def test_times_are_shown_when_all_runs_of_a_task_have_ended() -> None:
    row = cells(small_scale.times_by_task(make_result(make_records(81, diverged=2)), HOURS, CPU), "`so_lr`")
    assert (row["runs"], row["ended"], row["diverged"]) == ("81", "81", "2")
    assert (row["estimate"], row["run time"], row["run time / estimate"]) == ("0.50", "0.81", "1.62")
    row = cells(small_scale.times_by_task(make_result(make_records(80)), HOURS, CPU), "`so_lr`")
    assert row["ended"] == "80" and "run time" not in row


def test_run_times_of_another_cpu_type_are_left_out() -> None:
    assert "run time" not in cells(
        small_scale.times_by_task(make_result(make_records(81)), HOURS, "AVX512"), "`so_lr`"
    )


def test_only_planned_runs_that_have_ended_are_counted() -> None:
    """The directory may have runs of an earlier version of the scale."""
    others = [make_record(Path("runs/so_lr/earlier"), "done")]
    others += [make_record(make_records(5)[4].path, "done", rounds=60)]  # of the 100 rounds that are planned
    unfinished = [make_record(make_records(4)[3].path, "interrupted")]
    result = make_result([*make_records(3), *unfinished, *others])
    assert small_scale.progress(result, HOURS, "AVX512") == "3 of 81 runs have ended."
    assert cells(small_scale.times_by_task(result, HOURS, CPU), "all")["ended"] == "3"


def test_progress_compares_the_cpu_time_with_the_estimate() -> None:
    text = small_scale.progress(make_result(make_records(81)), HOURS, CPU)
    assert text.endswith("The command took 0.60 core hours of CPU time, 1.20 times the estimate.")
    unfinished = make_result(make_records(80))._replace(complete=False)
    assert small_scale.progress(unfinished, HOURS, CPU) == "80 of 81 runs have ended."


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
