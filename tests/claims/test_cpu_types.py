"""Results on two CPU types: values are compared, checksums only on one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from claims.cpu_types import COMPARED, run_on_this_cpu
from claims.entry import Entry
from claims.plan import REPEATED, REPEATED_WITH, plan_entries
from claims.repeatability import compare_curves, compare_values, judge_checksums
from claims.results import EntryResult, load_results, load_results_by_cpu
from claims.small_scale import small_scale_hours

from claims import cpu_types, rules, runner, times
from fedopt.runs.records import RunRecord
from fedopt_paper.cost_estimate import StepTimes
from fedopt_paper.published import TASK_NAMES

METHODS = len(COMPARED["tags of real questions"])
NAME = COMPARED["tags of real questions"]["fedadam"]


def make_record(seed: int, cpu: str, **info: object) -> RunRecord:
    return RunRecord(
        Path(f"seed_{seed}"), {"seed": seed, "status": "done", "machine": {"cpu": cpu}, **info}, {}, [], []
    )


def entry_result(name: str, cpu: str, values: list[float]) -> EntryResult:
    records = [make_record(seed, cpu, value=value, x_sha256=f"{value}") for seed, value in enumerate(values)]
    return EntryResult(name, "fedopt run", ["abc1234"], True, 1.0, records)


def stored(cpu: str, shifts: dict[str, tuple[float, float, float]]) -> dict[str, EntryResult]:
    """Three seeds of each compared entry: 0.4, 0.5 and 0.6 plus the shifts of its method."""
    return {
        name: entry_result(
            name,
            cpu,
            [v + s for v, s in zip((0.4, 0.5, 0.6), shifts.get(method, (0.0, 0.0, 0.0)), strict=True)],
        )
        for names in COMPARED.values()
        for method, name in names.items()
    }


def test_compared_entries_are_part_of_the_plan() -> None:
    names = {entry.name for entry in plan_entries(load_results())}
    assert {name for found in COMPARED.values() for name in found.values()} <= names


def test_differences_are_paired_by_seed() -> None:
    other = stored("AVX2", {"fedadam": (0.009, 0.010, 0.011)})
    table, verdicts = compare_values(stored("AVX512", {}), {"AVX2": other})
    (row,) = [line for line in table.splitlines() if line.startswith("| tags of real questions | FedAdam |")]
    # The differences are 0.9, 1.0 and 1.1 points: mean 1, standard error 0.1 / sqrt(3), t = 4.303.
    assert row.endswith("| +1.0 ± 0.2 | 1.1 | 0 of 3 |")
    assert verdicts["values on AVX2"].status == rules.NOT_SHOWN  # 2 of 10 intervals exclude 0


def test_equal_values_are_confirmed() -> None:
    first, second = stored("AVX512", {}), stored("AVX2", {})
    assert compare_values(first, {"AVX2": second})[1]["values on AVX2"].status == rules.CONFIRMED


def test_missing_runs_are_not_judged() -> None:
    second = stored("AVX2", {})
    second.popitem()
    verdict = compare_values(stored("AVX512", {}), {"AVX2": second})[1]["values on AVX2"]
    assert verdict.status == rules.NOT_RUN
    assert f"{2 * METHODS - 1} of {2 * METHODS}" in verdict.reason


def test_checksums_are_compared_on_one_cpu_type() -> None:
    count = len(REPEATED_WITH)
    runs = {
        (case, cpu): [make_record(0, cpu, x_sha256=f"{case} {cpu}") for _ in range(count)]
        for case in REPEATED
        for cpu in ("AVX512", "AVX2")
    }
    runs["so_lr", "AVX2"][-1].info["x_sha256"] = "another"
    statuses = {name: verdict.status for name, verdict in judge_checksums(runs).items()}
    assert statuses == {"checksums on AVX512": rules.CONFIRMED, "checksums on AVX2": rules.CONTRADICTED}


def test_checksums_of_another_cpu_type_are_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Entry("test/small", ("run", "synthetic_lr"), 1)
    known = {entry.name: entry_result(entry.name, "NO SUCH CPU", [0.5])}
    monkeypatch.setattr(runner, "load_results", lambda: known)
    lines: list[str] = []
    assert not runner.verify(entry, tmp_path, lines.append)
    assert len(lines) == 1 and "NO SUCH CPU" in lines[0]
    assert not list(tmp_path.iterdir())  # nothing was run


def test_curves_on_two_cpu_types_are_compared_at_common_rounds() -> None:
    """The mean of 1.5 and 0.5 points in rounds 250 and 300; round 25 is before the last 100 rounds."""

    def result(cpu: str, values: dict[int, float]) -> EntryResult:
        record = make_record(0, cpu)._replace(test=[{"round": t, "accuracy": v} for t, v in values.items()])
        return EntryResult("", "", [], True, None, [record])

    short = result("AVX2", {25: 0.300, 250: 0.500, 300: 0.520})
    long = result("AVX512", {25: 0.320, 250: 0.515, 300: 0.525, 1500: 0.570})
    (row,) = compare_curves({"shakespeare/fedavg-0": short, "shakespeare/fedavg-0-1500": long}).splitlines()[
        2:
    ]
    assert row == "| FedAvg | AVX2 and AVX512 | 300 | 3 | 2.00 | +1.00 |"
    assert compare_curves({"shakespeare/fedavg-0": short, "shakespeare/fedavg-0-1500": short}) == ""


def test_run_that_two_cpu_types_have_computed_names_both() -> None:
    record = make_record(0, "AVX2", earlier_machines=[{"cpu": "AVX512"}])
    result = EntryResult("", "", [], True, None, [record])
    assert result.cpu_type == "AVX2 and AVX512"


@pytest.mark.parametrize(
    ("elsewhere", "is_run"),
    [
        ({}, False),
        ({"this": "AVX9-Vendor-1-2"}, True),
        ({"old": "AVX9"}, True),  # the model was not recorded
        ({"other": "AVX9-Vendor-1-3"}, False),
    ],
)
def test_checksums_of_this_cpu_type_are_verified(
    elsewhere: dict[str, str], is_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, executed = Entry("test/small", ("run", "synthetic_lr"), 1), list[Entry]()
    others = {name: {entry.name: entry_result(entry.name, cpu, [0.5])} for name, cpu in elsewhere.items()}
    monkeypatch.setattr(runner, "load_results", lambda: {entry.name: entry_result(entry.name, "AVX8", [0.5])})
    monkeypatch.setattr(runner, "load_results_by_cpu", lambda: others)
    monkeypatch.setattr(runner, "this_cpu_type", lambda: "AVX9-Vendor-1-2")
    monkeypatch.setattr(runner.torch.backends.cpu, "get_cpu_capability", lambda: "AVX9")
    monkeypatch.setattr(runner, "execute", lambda e, *_: executed.append(e) or runner.Attempt(1, 0.0))
    assert not runner.verify(entry, tmp_path, lambda line: None)
    assert bool(executed) is is_run


@pytest.mark.slow
def test_entry_of_another_cpu_type_runs_once_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts a command, which imports torch twice."""
    arguments = ("run", "synthetic_lr", "--rounds", "2", "--executor", "serial", "--set", "data.clients=4")
    entry = Entry(NAME, (*arguments, "--set", "clients_per_round=2"), 5)
    known = {NAME: entry_result(NAME, "NO SUCH CPU", [0.5])}
    monkeypatch.setattr(cpu_types, "plan_entries", lambda found: [entry, entry._replace(name="other")])
    monkeypatch.setattr(cpu_types, "load_results", lambda: known)
    lines: list[str] = []
    assert run_on_this_cpu(tmp_path, "", lines.append, tmp_path / "stored") == 0
    here = runner.this_cpu_type()
    result = load_results_by_cpu(tmp_path / "stored")[here][NAME]
    assert result.complete and result.cpu_type == here and len(result.done) == 1
    lines.clear()
    assert run_on_this_cpu(tmp_path, "", lines.append, tmp_path / "stored") == 0
    assert lines == [f"{NAME}: a result of {here} is stored"]


def test_estimated_runs_are_those_of_the_small_scale() -> None:
    """After a change of the scale: python -m claims estimate"""
    hours = small_scale_hours({task: StepTimes(1e-9, 1e-9) for task in TASK_NAMES})
    estimated = times.load_estimates()["reproduce_small"]
    assert _runs(estimated) == _runs(hours)
    # SO LR: 9 pairs of rates, 3 adaptive methods with two values of tau, 3 others; 6 tasks with fewer runs
    assert _runs(hours)["so_lr"] == 9 * (3 * 2 + 3)
    assert _runs(hours)["shakespeare"] == _runs(hours)["emnist_ae"] == 4 * (3 * 2 + 3)
    # decay: 4 pairs of rates for 5 methods; centralized: 2 rates for 5 optimizers
    assert _runs(hours)["emnist_cr"] == 4 * (3 * 2 + 3) + 4 * 5 + 2 * 5
    assert _runs(hours)["cifar10"] == _runs(hours)["cifar100"] == _runs(hours)["so_nwp"] == 6


def _runs(tasks: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the number of runs of each task."""
    return {task: runs for task, (runs, _) in tasks.items()}


def test_estimate_of_a_command_counts_its_local_steps(tmp_path: Path) -> None:
    """Three rounds of centralized training: 100 steps each, or the 33,580 steps of an epoch."""
    config = {"data.source": "synthetic", "client.batch_size": 20, "clients_per_round": 1, "rounds": 3}
    config |= {"eval.every": 3, "eval.last_every": 3, "eval.sample": 20}
    info = {"task": "emnist_cr", "algorithm": "centralized"}
    lines = [{"round": round, "loss": 1.0} for round in (1, 2, 3)]

    def seconds(**steps: int) -> float:
        record = RunRecord(tmp_path, info, config | {f"client.{k}": n for k, n in steps.items()}, lines, [])
        return times.estimate_seconds(record, StepTimes(1.0, 0.0), tmp_path)

    epoch = -(-671_585 // 20)  # examples of all writers in batches of 20
    assert seconds(epochs=1) - seconds(steps=100) == pytest.approx(3 * (epoch - 100))
