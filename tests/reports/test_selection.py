"""The winner of a sweep: the requested rule, the best metric value and the edge of the grid."""

from __future__ import annotations

from pathlib import Path

from written import write_trial

from fedopt.intervals import Interval
from fedopt.reports.grids import find_grids
from fedopt.reports.sentences import ScoredTrial, describe_grid_selection, describe_selection
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
        "Selected by the paper's rule (smallest train loss, mean of all 4 rounds): fedadam at "
        "client_lr=0 server_lr=0 (rates in log10). Its results: 0.7000 (mean train loss), 0.1000 below the "
        "best trial of fedavg; 70.0 % mean accuracy; 70.0 % accuracy at round 4. One seed: differences may "
        "be noise.",
        "Best mean accuracy: 80.0 %, fedavg at client_lr=1 server_lr=0.",
        "Best accuracy: 80.0 %, fedavg at client_lr=1 server_lr=0.",
        "At the edge of the grid: fedavg (client_lr). A wider grid may be better.",
    ]


def test_selection_by_the_metric_names_its_best_trial(tmp_path: Path) -> None:
    first, last, edge = describe_grid_selection(find_grids(write_trials(tmp_path)), "accuracy", "accuracy")
    assert first.startswith(
        "Selected by accuracy (mean of all 4 rounds): fedavg at client_lr=1 server_lr=0 (rates in log10). "
        "Its results: 80.0 % mean accuracy, 10.0 points above the best trial of fedadam; 80.0 % accuracy at "
        "round 4."
    )
    assert last == "Best accuracy: 80.0 %, the same trial."
    assert edge.startswith("At the edge of the grid: fedavg (client_lr).")


def scored(method: str, loss: float, mean: float, last: float) -> ScoredTrial:
    intervals = (Interval(number, 0.1, 3) for number in (loss, mean, last))
    return ScoredTrial(method, "client_lr=0", *intervals, rounds=10, edges=[])


def test_mean_and_last_evaluation_have_different_names() -> None:
    """The trial with the best mean is not the one that is best at the end."""
    trials = [scored("fedadam", 0.7, 0.629, 0.743), scored("fedavg", 0.8, 0.5, 0.789)]
    first, mean, last = describe_selection(trials, "train_loss", "accuracy", False, True)
    assert first.endswith("; 62.9 ± 10.0 % mean accuracy; 74.3 ± 10.0 % accuracy at round 10.")
    assert mean == "Best mean accuracy: 62.9 %, the same trial."
    assert last == "Best accuracy: 78.9 %, fedavg at client_lr=0."


def test_equal_scores_are_not_a_margin() -> None:
    trials = [scored("fedadam", 0.7, 0.6, 0.6), scored("fedyogi", 0.7, 0.6, 0.6)]
    first, _, last = describe_selection(trials, "train_loss", "accuracy", False, True)
    assert "0.7000 ± 0.1000 (mean train loss), equal to the best trial of fedyogi;" in first
    assert last == "Best accuracy: 60.0 %, the same trial."


def test_sweep_without_a_result_suggests_smaller_rates() -> None:
    (text,) = describe_selection([], "train_loss", "accuracy", False, True)
    assert text == "No trial has a finite result; try a grid with smaller rates."
