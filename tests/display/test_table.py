"""The numbers that compare runs, over seeds, and their table for the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from written import MB, write_lines, write_run, write_trial

from fedopt.analysis.summary import target_value
from fedopt.display.table import against_best, columns, comparison_table, explanation, summarise
from fedopt.errors import UserError
from fedopt.runs.records import RunRecord, read_run

T_2 = 4.302653  # Student's t for three seeds, from the table
FIRST, NEAR, FAR = (0.70, 0.72, 0.74), (0.71, 0.70, 0.745), (0.60, 0.62, 0.64)


def seeds(root: Path, name: str, values: tuple[float, ...], **info: Any) -> list[RunRecord]:
    return [
        write_trial(root / f"{name}-{seed}", name, (0.1, 1.0), value, seed=seed, **info)
        for seed, value in enumerate(values)
    ]


def printed(records: list[RunRecord], width: int = 100, limit: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison_table(records, limit))
    return capture.get().splitlines()


def test_the_summary_has_the_numbers_worked_out_by_hand(three: list[RunRecord]) -> None:
    best, second, last = summarise(three)
    assert target_value([best, second, last]) == 0.72  # 0.80 less 10 %
    assert [s.label for s in (best, second, last)] == ["fedyogi", "scaffold", "fedavg"]
    assert (best.value, best.train_loss, best.seconds) == (0.80, 0.5, 4.0)
    assert second.train_loss == pytest.approx(25 / 48)  # not recorded: the mean of 1, 1/2, 1/3, 1/4
    assert (best.rounds_to_target, best.bytes_to_target, best.bytes_total) == (2, 20 * MB, 40 * MB)
    assert (second.rounds_to_target, second.bytes_to_target, second.bytes_total) == (4, 80 * MB, 80 * MB)
    assert (last.rounds_to_target, last.bytes_to_target, last.bytes_total) == (None, None, 40 * MB)
    assert best.halves == {}  # one seed has no interval


def test_a_lower_metric_is_ranked_and_reached_from_above(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"metric": "mse", "better": "lower"}
    records = [
        write_run(tmp_path / "a", "fedavg", (0.1, 0.021, 0.0198), value=0.0204, **shared),
        write_run(tmp_path / "b", "fedadam", (0.1, 0.019, 0.017), value=0.018, **shared),
    ]
    found = summarise(records)
    assert target_value(found) == 0.0198  # 0.018 plus 10 %
    assert [(s.label, s.rounds_to_target) for s in found] == [("fedadam", 2), ("fedavg", 4)]
    assert [cell.text for cell in columns(found)[0].cells] == ["18.00", "20.40"]


def test_an_unfinished_run_has_its_mean_over_the_last_hundred_rounds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", rounds=200, value=0.9, metric=None, better=None).path
    values = {0: 0.0, 50: 0.3, 51: 0.5, 150: 0.7}
    write_lines(run, [{"round": t, "split": "test", "accuracy": v, "seconds": t} for t, v in values.items()])
    (summary,) = summarise([read_run(run)])
    assert summary.value == pytest.approx(0.6)  # rounds 51 to 150: 0.5 and 0.7; 0.9 is what was before
    assert (summary.seconds, summary.bytes_total) == (150.0, None)
    assert summary.note == "unfinished, round 150 of 200"


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_a_failed_run_comes_last_and_does_not_set_the_target(tmp_path: Path, status: str) -> None:
    failed = write_run(tmp_path / "a", "fedadam", (0.1, 0.99, 0.99), status=status, rounds=60)
    pruned = write_run(tmp_path / "c", "scaffold", (0.1, 0.98, 0.98), status="pruned", rounds=60)
    found = summarise([failed, pruned, write_run(tmp_path / "b", value=0.5)])
    assert [s.label for s in found] == ["fedavg", "scaffold", "fedadam"]
    assert [s.note for s in found] == ["", "pruned, round 4 of 60", f"{status}, round 4 of 60"]
    assert target_value(found) == 0.45
    assert [s.failed for s in found] == [False, False, True]


def test_the_terminal_table_is_sorted_scaled_and_says_synthetic(three: list[RunRecord]) -> None:
    title, *lines = printed(three)
    assert title.strip() == "emnist_cr, 4 rounds, synthetic data"
    rows = [line.split() for line in lines if line.strip().startswith(("fed", "scaffold"))]
    assert [row[0] for row in rows] == ["fedyogi", "scaffold", "fedavg"]
    assert rows[0] == ["fedyogi", "80.0", "%", "85.0", "%", "0.500", "2", "40.0", "4.00"]
    assert rows[2] == ["fedavg", "60.0", "%", "70.0", "%", "0.900", "–", "40.0", "3.00"]
    best = [[cell.best for cell in column.cells] for column in columns(summarise(three))]
    assert best[0] == [True, False, False]
    assert best[4] == [False, False, False]  # two of three share the fewest MB: nothing stands out
    assert "One seed each: how much of a difference is noise is unknown." in explanation(three)
    assert "noise" not in explanation(three[:1])


# -- several seeds


def test_seeds_become_a_mean_with_half_its_interval(tmp_path: Path) -> None:
    records = seeds(tmp_path, "fedadam", FIRST) + seeds(tmp_path, "fedavg", FAR)
    best, other = summarise(records)
    half = T_2 * 0.02 / 3**0.5  # the sample deviation of both is 0.02
    assert (best.label, best.value) == ("fedadam", pytest.approx(0.72))
    assert best.halves["value"] == pytest.approx(half, rel=1e-6)
    assert columns([best, other])[0].cells[0].text == "72.0 ± 5.0 %"
    rows = {line.split()[0]: line.split() for line in printed(records) if line.strip().startswith("fed")}
    assert rows["fedadam"][1:3] == ["72.0±5.0", "%"]
    assert rows["fedavg"][-1] == "3"  # seeds


def test_a_difference_that_seeds_could_make_is_called_noise(tmp_path: Path) -> None:
    """The differences from the best are 0.10 thrice, and -0.01, 0.02, -0.005: 0.002 +- 0.040."""
    records = [r for name, v in (("a", FIRST), ("b", NEAR), ("c", FAR)) for r in seeds(tmp_path, name, v)]
    single = write_trial(tmp_path / "d", "d", (0.1, 1.0), 0.5)
    found = summarise([*records, single])
    assert [s.label for s in found] == ["a", "b", "c", "d"]
    assert against_best(found) == ["best", "within noise", "worse", "noise unknown"]
    text = explanation([*records, single])
    assert "Within noise of the best, a: b (the 95 % interval of the difference" in text
    assert "Fewer than two seeds in common with the best, so noise unknown: d." in text


def test_a_seed_that_diverged_is_named_and_takes_no_part_in_the_mean(tmp_path: Path) -> None:
    records = seeds(tmp_path, "fedavg", (0.4, 0.6)) + seeds(tmp_path, "fedadam", (0.1, 0.1))
    bad = write_trial(tmp_path / "bad", "fedavg", (0.1, 1.0), 0.9, seed=2, status="diverged")
    found = summarise([*records, bad])
    assert [(s.label, s.value, s.note) for s in found] == [
        ("fedadam", 0.1, ""),  # what failed for one seed is not the best
        ("fedavg", 0.5, "diverged: 1 of 3 seeds"),
    ]


def test_a_target_that_only_some_seeds_meet_says_so(tmp_path: Path) -> None:
    records = seeds(tmp_path, "fedavg", (0.5, 0.5, 0.9)) + seeds(tmp_path, "fedadam", (0.6, 0.7, 0.8))
    found = {s.label: s for s in summarise(records)}  # the best mean is 0.7, so the target 0.63
    assert (found["fedavg"].met_target, found["fedadam"].met_target) == (1, 2)
    texts = columns(summarise(records))[3].cells
    assert [cell.text for cell in texts] == ["2.0 ± 0.0 (2 of 3 seeds)", "2 (1 of 3 seeds)"]
    assert not any(cell.best for cell in texts)


def test_the_table_of_several_seeds_fits_a_hundred_columns(tmp_path: Path) -> None:
    records = seeds(tmp_path, "fedadagrad", FIRST, seconds=1234.5) + seeds(tmp_path, "fedavg", FAR, seconds=3)
    lines = printed(records, width=100)
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert not any("…" in line for line in lines)
    first = next(line for line in lines if "fedadagrad" in line)
    assert "72.0±5.0 %" in first and first.split()[-1] == "3"  # nothing was broken into lines


# -- names, and what cannot be compared


def test_trials_of_a_grid_are_named_by_their_rates(tmp_path: Path) -> None:
    points = [(0.1, 1.0, 1e-3), (10**-1.5, 1.0, 1e-5), (0.1, 0.1, 1e-3)]
    trials = [write_trial(tmp_path / f"hash{at}", "fedadam", p) for at, p in enumerate(points)]
    assert [s.label for s in sorted(summarise(trials), key=lambda s: s.position)] == [
        "fedadam (client.lr 0.1, server.lr 1, server.tau 0.001)",
        "fedadam (client.lr 0.03162, server.lr 1, server.tau 1e-05)",
        "fedadam (client.lr 0.1, server.lr 0.1, server.tau 0.001)",
    ]
    assert len([line for line in printed(trials, limit=2) if "fedadam" in line]) == 2


def test_no_runs_and_mixed_tasks_are_refused(three: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs"):
        comparison_table([])
    other = write_run(tmp_path / "other", task="shakespeare")
    with pytest.raises(UserError, match="one task.*emnist_cr .*, shakespeare "):
        comparison_table([*three, other])
