"""Learning-rate grids: cells, best trials, trials near the best, and the colour scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import run
from written import write_trial

from fedopt.errors import RunError
from fedopt.reports.grids import (
    HeatMap,
    Tolerance,
    find_grids,
    grid_ease_of_tuning,
    metric_tolerance,
)
from fedopt.reports.heatmaps import metric_scale
from fedopt.runs.discover import find_runs
from fedopt.runs.records import RunRecord

repeatable = settings(deadline=None, derandomize=True, max_examples=60)


def trials(root: Path, name: str, values: dict[tuple[float, ...], Any], **info: Any) -> list[RunRecord]:
    """Write a trial for each point. A string instead of a value is the status of a trial without a result."""
    found = []
    for at, (rates, value) in enumerate(values.items()):
        outcome = {"value": None, "status": value} if isinstance(value, str) else {"value": value}
        found.append(write_trial(root / f"{name}-{at}", name, rates, **(outcome | info)))
    return found


def maps(records: list[RunRecord]) -> list[HeatMap]:
    return [heat_map for grid in find_grids(records) for heat_map in grid.heat_maps()]


def test_map_has_ascending_rates_and_a_cell_for_each_trial(tmp_path: Path) -> None:
    values = {(1.0, 0.1): 0.3, (0.1, 1.0): 0.4, (0.1, 0.1): 0.2}  # none at (1, 1)
    (found,) = maps(trials(tmp_path, "fedavg", values))
    assert (found.grid.method, found.tau) == ("fedavg", None)
    assert (found.client_rates, found.server_rates) == ((0.1, 1.0), (0.1, 1.0))
    assert {at: trial.value for at, trial in found.cells.items()} == values


def test_each_tau_has_a_map(tmp_path: Path) -> None:
    rates = [(c, s) for c in (0.1, 1.0) for s in (0.1, 1.0)]
    adaptive = {(c, s, tau): 0.1 * at for tau in (1e-1, 1e-3) for at, (c, s) in enumerate(rates)}
    records = trials(tmp_path, "fedadam", adaptive)
    records += trials(tmp_path, "fedavg", dict.fromkeys(rates, 0.2))
    assert [(m.grid.method, m.tau) for m in maps(records)] == [
        ("fedadam", 1e-3),
        ("fedadam", 1e-1),
        ("fedavg", None),
    ]
    assert [len(grid.trials) for grid in find_grids(records)] == [
        8,
        4,
    ]  # v_{-1} follows tau


def test_one_server_rate_gives_a_grid_without_a_map(tmp_path: Path) -> None:
    records = trials(tmp_path, "fedavg", {(0.1, 1.0): 0.5, (1.0, 1.0): 0.6})
    assert maps(records) == []
    assert [len(grid.trials) for grid in find_grids(records)] == [2]
    assert find_grids(records[:1]) == []


def test_rates_equal_to_ten_digits_share_an_axis_value(tmp_path: Path) -> None:
    a, b = 10**-0.5, 0.31622776601  # typed with fewer digits
    records = trials(tmp_path, "fedavg", {(a, 0.1): 0.1, (b, 1.0): 0.2, (1.0, 0.1): 0.3, (1.0, 1.0): 0.4})
    (found,) = maps(records)
    assert len(found.client_rates) == 2 and len(found.cells) == 4


def test_grids_of_one_algorithm_are_named_by_their_settings(tmp_path: Path) -> None:
    rates = [(c, s) for c in (0.1, 1.0) for s in (0.1, 1.0)]
    for variant in ("as_run", "as_printed"):
        trials(tmp_path / variant, "fedavg", dict.fromkeys(rates, 0.2), settings={"variant": variant})
    found = maps(find_runs([tmp_path]).records)
    assert sorted(m.grid.method for m in found) == ["fedavg (variant as_printed)", "fedavg (variant as_run)"]


def test_seeds_form_one_trial_and_repeated_runs_count_once(tmp_path: Path) -> None:
    records = [
        write_trial(tmp_path / f"{rate}-{seed}", "fedavg", (rate, 1.0), 0.2 + 0.1 * seed, seed=seed)
        for rate in (0.1, 1.0)
        for seed in (0, 1, 2)
    ]
    again = write_trial(tmp_path / "again", "fedavg", (0.1, 1.0), 0.9)  # the same configuration and length
    (grid,) = find_grids([*records, again])
    assert [trial.value for trial in grid.trials] == pytest.approx([0.3, 0.3])  # (0.2 + 0.3 + 0.4) / 3
    assert [len(trial.group.records) for trial in grid.trials] == [3, 3]


def test_best_trial_and_the_trial_selected_by_the_papers_rule_may_differ(tmp_path: Path) -> None:
    records = [
        write_trial(tmp_path / "a", "fedavg", (0.1, 1.0), 0.80, train_loss=0.5),
        write_trial(tmp_path / "b", "fedavg", (1.0, 1.0), 0.70, train_loss=0.1),
        write_trial(tmp_path / "c", "fedavg", (10.0, 1.0), 0.99, train_loss=0.01, status="diverged"),
        write_trial(tmp_path / "d", "fedavg", (100.0, 1.0), 0.98, train_loss=0.02, status="pruned"),
    ]
    (grid,) = find_grids(records)
    assert grid.best and grid.best.client_lr == 0.1
    selected = grid.selected_by_papers_rule
    assert selected and selected.client_lr == 1.0  # smallest train loss
    assert (grid.selected_by("train_loss"), grid.selected_by("accuracy")) == (selected, grid.best)
    assert (grid.edges(grid.best), grid.edges(selected)) == (["client_lr"], [])
    (lower,) = find_grids([r._replace(info=r.info | {"better": "lower", "metric": "mse"}) for r in records])
    assert lower.best and lower.best.client_lr == 1.0


def share(root: Path, values: list[Any], metric: str = "accuracy", better: str = "higher") -> Any:
    points = {(10.0**at, 1.0): value for at, value in enumerate(values)}
    (grid,) = find_grids(trials(root, "fedavg", points, metric=metric, better=better))
    return grid_ease_of_tuning([grid], metric)[0]


def test_accuracy_within_one_point_is_near_the_best(tmp_path: Path) -> None:
    found = share(tmp_path, [0.80, 0.79, 0.785, "diverged"])
    assert (found.near_best_share, found.near_best, found.total) == (0.5, 2, 4)
    assert metric_tolerance("accuracy").text == "1 percentage point"


def test_error_within_ten_percent_is_near_the_best(tmp_path: Path) -> None:
    found = share(tmp_path, [0.0180, 0.0198, 0.0199, "failed", "pruned"], "mse", "lower")
    assert (found.near_best_share, found.near_best, found.total) == (0.4, 2, 5)
    assert metric_tolerance("mse").text == "10 %"


def test_running_trials_do_not_count(tmp_path: Path) -> None:
    found = share(tmp_path / "a", [0.5, "running", "diverged"])
    assert (found.near_best_share, found.near_best, found.total) == (0.5, 1, 2)


def test_trial_without_a_finite_client_in_the_last_round_is_not_near(tmp_path: Path) -> None:
    records = trials(tmp_path, "fedavg", {(0.1, 1.0): 0.5, (1.0, 1.0): 0.5, (10.0, 1.0): 0.5})
    rejected = {**records[2].train[-1], "loss": None, "clients": 0, "rejected": 2}
    records[2] = records[2]._replace(train=[*records[2].train[:-1], rejected])
    (found,) = find_grids(records)
    assert [trial.value for trial in found.trials] == [0.5, 0.5, None]
    (ease,) = grid_ease_of_tuning([found], "accuracy")
    assert (ease.near_best, ease.total) == (2, 3)


def test_grid_is_compared_by_the_given_measure(tmp_path: Path) -> None:
    records = trials(tmp_path, "fedavg", {(0.1, 1.0): 0.7, (1.0, 1.0): 0.6, (10.0, 1.0): 0.5})
    losses = (1.00, 1.10, 1.12)  # two lie within a tenth of the smallest
    records = [
        record._replace(test=[{**line, "loss": loss} for line in record.test])
        for record, loss in zip(records, losses, strict=True)
    ]
    (found,) = find_grids(records, "loss")
    assert [trial.value for trial in found.trials] == pytest.approx(losses)
    assert grid_ease_of_tuning([found], "loss")[0].near_best == 2
    assert grid_ease_of_tuning(find_grids(records), "accuracy")[0].near_best == 1


@given(st.floats(0, 1), st.floats(0.001, 0.5), st.booleans(), st.booleans())
@repeatable
def test_limit_is_on_the_worse_side_of_the_best(
    best: float, size: float, relative: bool, higher: bool
) -> None:
    edge = Tolerance(size, relative).limit(best, higher)
    assert edge <= best if higher else edge >= best
    assert abs(edge - best) == pytest.approx(size * (best if relative else 1.0))


def test_trained_grid_with_a_diverging_rate(tmp_path: Path) -> None:
    for client in (0.1, 1.0, 1e30):
        for server in (0.1, 1.0):
            options = {"client.lr": client, "server.lr": server, "rounds": 2, "patience": 1}
            try:
                run(None, "fedavg", options, out=tmp_path / f"{client}-{server}", command="a test")
            except RunError:
                assert client == 1e30
    (found,) = maps(find_runs([tmp_path]).records)
    states = {at: trial.state for at, trial in found.cells.items()}
    assert states == {(c, s): "diverged" if c == 1e30 else "" for c in (0.1, 1.0, 1e30) for s in (0.1, 1.0)}
    (ease,) = grid_ease_of_tuning([found.grid], "accuracy")
    assert ease.total == 6 and 1 <= ease.near_best <= 4


@pytest.mark.parametrize(("higher", "best"), [(True, 0.9), (False, 0.1)])
def test_scale_runs_from_the_worst_to_the_best_value(higher: bool, best: float) -> None:
    scale = metric_scale([0.1, 0.5, 0.9], higher)
    assert (scale.position(best), scale.position(1.0 - best)) == (1.0, 0.0)
    assert scale.position(0.5) == pytest.approx(0.5) and scale.middle == pytest.approx(0.5)
    assert (scale.position(-1.0), scale.position(2.0)) == ((0.0, 1.0) if higher else (1.0, 0.0))
    assert not scale.log


def test_scale_of_errors_over_a_wide_range_is_logarithmic() -> None:
    scale = metric_scale([0.01, 0.1, 1.0], False)
    assert scale.log and scale.position(0.1) == pytest.approx(0.5) and scale.middle == pytest.approx(0.1)
    assert not metric_scale([0.01, 0.1, 1.0], True).log
    assert metric_scale([0.3], True).position(0.3) == 1.0
