"""Results on two CPU types: values are compared, checksums only on one type."""

from __future__ import annotations

from pathlib import Path

import pytest
from claims.cpu_types import COMPARED, comparison
from claims.entry import Entry
from claims.plan import plan_entries
from claims.results import EntryResult, load_results

from claims import rules, runner
from fedopt.runs.records import RunRecord

METHODS = len(COMPARED["tags of real questions"])


def entry_result(name: str, cpu: str, values: list[float]) -> EntryResult:
    records = [
        RunRecord(
            Path(f"seed_{seed}"),
            {"seed": seed, "value": value, "status": "done", "machine": {"cpu": cpu}},
            {},
            [],
            [],
        )
        for seed, value in enumerate(values)
    ]
    return EntryResult(name, "fedopt run", ["abc1234"], True, 1.0, records)


def stored(cpu: str, shift: dict[str, float]) -> dict[str, EntryResult]:
    """Three seeds of each compared entry: 0.5 plus 0.9, 1.0 and 1.1 times the shift of its method."""
    factors = (0.9, 1.0, 1.1)
    return {
        name: entry_result(name, cpu, [0.5 + shift.get(method, 0.0) * factor for factor in factors])
        for names in COMPARED.values()
        for method, name in names.items()
    }


def test_compared_entries_are_part_of_the_plan() -> None:
    names = {entry.name for entry in plan_entries(load_results())}
    assert {name for found in COMPARED.values() for name in found.values()} <= names


def test_differences_are_paired_by_seed() -> None:
    table, verdicts = comparison(stored("AVX512", {}), {"AVX2": stored("AVX2", {"fedadam": 0.01})})
    (row,) = [line for line in table.splitlines() if line.startswith("| tags of real questions | FedAdam |")]
    # The differences are 0.9, 1.0 and 1.1 points: mean 1, standard error 0.1 / sqrt(3), t = 4.303.
    assert row.endswith("| AVX512 and AVX2 | 50.0 ± 0.0 | 51.0 ± 0.2 | +1.0 ± 0.2 | 1.1 |")
    assert verdicts["values on AVX2"].status == rules.NOT_SHOWN  # 2 of 10 intervals exclude 0


def test_equal_values_hold() -> None:
    first, second = stored("AVX512", {}), stored("AVX2", {})
    assert comparison(first, {"AVX2": second})[1]["values on AVX2"].status == rules.HOLDS


def test_missing_runs_are_not_judged() -> None:
    second = stored("AVX2", {})
    second.popitem()
    verdict = comparison(stored("AVX512", {}), {"AVX2": second})[1]["values on AVX2"]
    assert verdict.status == rules.NOT_RUN
    assert f"{2 * METHODS - 1} of {2 * METHODS}" in verdict.reason


def test_checksums_of_another_cpu_type_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Entry("test/small", ("run", "synthetic_lr"), 1)
    known = {entry.name: entry_result(entry.name, "NO SUCH CPU", [0.5])}
    monkeypatch.setattr(runner, "load_results", lambda: known)
    lines: list[str] = []
    assert not runner.verify(entry, tmp_path, lines.append)
    assert len(lines) == 1 and "NO SUCH CPU" in lines[0]
    assert not list(tmp_path.iterdir())  # nothing was run
