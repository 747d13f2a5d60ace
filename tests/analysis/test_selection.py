"""The winner of a sweep: the requested rule, the best metric value and the edge of the grid."""

from __future__ import annotations

from pathlib import Path

from written import write_trial

from fedopt.analysis.heatmap import find_grids
from fedopt.analysis.seeds import Interval
from fedopt.analysis.selection import ScoredTrial, describe_grid_selection, describe_selection
from fedopt.runs.records import RunRecord


def write_trials(root: Path) -> list[RunRecord]:
    """The smallest train loss is that of fedadam at client rate 1, the best accuracy that of fedavg at 10."""
    numbers = {
        ("fedavg", 1.0): (0.50, 0.9),
        ("fedavg", 10.0): (0.80, 0.8),
        ("fedadam", 0.1): (0.60, 0.75),
        ("fedadam", 1.0): (0.70, 0.7),
        ("fedadam", 10.0): (0.65, 0.71),
    }
    return [
        write_trial(root / f"{name}-{rate}", name, (rate, 1.0), value, train_loss=loss)
        for (name, rate), (value, loss) in numbers.items()
    ]


def test_papers_rule_selects_by_train_loss_and_states_the_best_metric(tmp_path: Path) -> None:
    grids = find_grids(write_trials(tmp_path))
    assert describe_grid_selection(grids, "train_loss", "accuracy") == [
        "Selected by the paper's rule (smallest mean train loss over the last 100 rounds): fedadam at "
        "client_lr=0 server_lr=0: 0.7000 (train loss), 70.0 % accuracy; 0.1000 below the best trial of "
        "fedavg. One seed: differences may be noise.",
        "Best accuracy: 80.0 %, fedavg at client_lr=1 server_lr=0.",
        "At the edge of the grid: fedavg (client_lr). A wider grid may be better.",
    ]


def test_selection_by_the_metric_names_its_best_trial(tmp_path: Path) -> None:
    first, edge = describe_grid_selection(find_grids(write_trials(tmp_path)), "accuracy", "accuracy")
    assert first.startswith(
        "Selected by accuracy (mean over the evaluations of the last 100 rounds): fedavg at client_lr=1 "
        "server_lr=0: 80.0 % accuracy; 10.0 points above the best trial of fedadam."
    )
    assert edge.startswith("At the edge of the grid: fedavg (client_lr).")


def test_winner_with_the_best_metric_is_named_once() -> None:
    trial = ScoredTrial("fedadam", "client_lr=0", Interval(0.7, 0.1, 3), Interval(0.5, 0.02, 3), [])
    first, second = describe_selection([trial], trial, "train_loss", "accuracy", lower_is_better=True)
    assert first.endswith("fedadam at client_lr=0: 0.7000 ± 0.1000 (train loss), 50.0 ± 2.0 % accuracy.")
    assert second == "Best accuracy: 50.0 %, the same trial."


def test_sweep_without_a_result_suggests_smaller_rates() -> None:
    (text,) = describe_selection([], None, "train_loss", "accuracy", lower_is_better=True)
    assert text == "No trial has a finite result; try a grid with smaller rates."
