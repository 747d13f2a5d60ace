"""Scores of trials at the end, at rungs, and of runs longer than the sweep."""

from __future__ import annotations

import pytest
from records import make_record

from fedopt.errors import UnknownName
from fedopt.tasks import TASKS
from fedopt.tuning.scores import (
    check_selection,
    lower_is_better,
    rung_score,
    rung_window,
    score,
    truncate_record,
)


def test_score_is_the_mean_train_loss_of_the_last_100_rounds() -> None:
    losses = [1000.0] * 50 + [float(t) for t in range(1, 101)]
    assert score(make_record(losses), "train_loss", 150) == 50.5
    assert score(make_record(losses), "train_loss", 150, last=2) == 99.5
    assert score(make_record(losses[:50] + [2.0] * 50), "train_loss", 100) == 501.0


def test_longer_run_is_scored_after_the_requested_rounds() -> None:
    losses = [4.0, 2.0, 100.0, 100.0]
    assert score(make_record(losses), "train_loss", 2) == 3.0
    assert score(make_record(losses), "train_loss", 5) is None  # too short


def test_metric_is_averaged_over_the_planned_evaluations_only() -> None:
    # a run of 25 that was extended to 30; every=50 and last_every=10 evaluate 30, 20, 10 of a run of 30
    record = make_record(
        [1.0] * 30, tests={0: 9.0, 5: 0.1, 15: 0.2, 25: 0.3, 30: 0.5}, every=50, last_every=10
    )
    assert score(record, "recall_at_5", 30) == 0.5
    assert score(record, "recall_at_5", 25) == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert score(record, "recall_at_5", 28) is None  # never evaluated there
    assert score(record, "precision", 30) is None


def test_longer_run_with_default_evaluations_is_scored_like_a_short_one() -> None:
    """A run of 40 rounds is evaluated every second round by default, one of 8 in every round."""
    tests = {round: round / 100 for round in range(2, 41, 2)}
    record = make_record([1.0] * 40, tests=tests | {1: 0.01, 3: 0.03}, every=2, last_every=10)
    record.config["rounds"] = 40
    assert score(record, "recall_at_5", 8) == pytest.approx((0.01 + 0.02 + 0.03 + 0.04 + 0.06 + 0.08) / 6)
    assert score(record, "recall_at_5", 40) == pytest.approx(sum(range(2, 41, 2)) / 20 / 100)


@pytest.mark.parametrize(
    ("losses", "status", "rounds", "expected"),
    [
        ([1.0, 2.0, None, None], "diverged", 4, None),
        ([1.0, 2.0, None, None], "diverged", 2, 1.5),  # before it diverged
        ([1.0, 2.0, None, None], "diverged", 3, None),  # after the first invalid round
        ([1.0, None, 3.0], "done", 3, None),  # a round that counts had no finite update
        ([1.0, 2.0, None], "done", 3, None),
        ([1.0, 2.0], "pruned", 2, 1.5),
        ([], "running", 1, None),
    ],
)
def test_diverged_trial_has_no_score_after_divergence(
    losses: list[float | None], status: str, rounds: int, expected: float | None
) -> None:
    assert score(make_record(losses, status), "train_loss", rounds) == expected


def test_trial_with_rejected_clients_has_no_score() -> None:
    """Half of the clients diverge, and the others have a small loss: such a rate must not win."""
    tests = {2: 0.2, 4: 0.9}
    record = make_record([0.1] * 4, tests=tests)
    assert score(record, "train_loss", 4) == pytest.approx(0.1)
    record.train[2]["rejected"] = 3
    for select in ("train_loss", "recall_at_5"):
        assert score(record, select, 4) is None
        assert rung_score(record, select, 4, last=2) is None
        assert score(record, select, 2) is not None  # before
        assert score(record, select, 4, last=1) is not None  # after
    assert truncate_record(record, 3).status == "done"  # the run itself did not diverge
    assert truncate_record(record, 3).rejected == 3


def test_round_without_a_finite_loss_counts_as_rejection() -> None:
    record = make_record([0.1] * 4)
    record.train[2]["loss"] = None  # two clients had finite updates and a loss that is not finite
    assert score(record, "train_loss", 4) is None
    record.train[2]["clients"] = 0  # all clients had fewer examples than a batch
    assert score(record, "train_loss", 4) == pytest.approx(0.1)


def test_rung_score_of_a_metric_uses_the_most_recent_evaluation() -> None:
    record = make_record([1.0] * 9, "running", tests={0: 9.0, 4: 0.4, 7: 0.7})
    assert rung_score(record, "recall_at_5", 9, last=5) == 0.7
    assert rung_score(record, "recall_at_5", 6, last=2) == 0.4
    assert rung_score(record, "recall_at_5", 3, last=2) is None
    assert rung_score(record, "train_loss", 3, last=2) == 1.0


@pytest.mark.parametrize(
    ("rung", "rounds", "last"), [(1, 27, 1), (9, 27, 5), (27, 27, 100), (400, 1500, 100), (150, 1500, 75)]
)
def test_rung_window_is_the_second_half_and_100_rounds_at_the_end(rung: int, rounds: int, last: int) -> None:
    assert rung_window(rung, rounds) == last


def test_direction_and_validation_of_the_selection() -> None:
    lr, autoencoder = TASKS["so_lr"], TASKS["emnist_ae"]
    assert lower_is_better(lr, "train_loss") and lower_is_better(lr, "loss")
    assert not lower_is_better(lr, "recall_at_5") and not lower_is_better(lr, "precision")
    assert lower_is_better(autoencoder, autoencoder.metric)
    check_selection(lr, "precision")
    with pytest.raises(UnknownName) as error:
        check_selection(lr, "recall_at5")
    assert error.value.name == "recall_at5" and "recall_at_5" in error.value.allowed


def test_truncated_record_equals_that_of_a_shorter_run() -> None:
    tests = {0: 0.0, 2: 0.2, 3: 0.3, 4: 0.4, 6: 0.6}
    long = make_record(
        [4.0, 3.0, 2.0, 1.0, 0.5, 0.2], tests=tests, rounds=6, value=0.6, params=7, task="so_lr"
    )
    short = truncate_record(long, 4)
    assert [line["round"] for line in short.train] == [1, 2, 3, 4]
    assert [line["round"] for line in short.test] == [0, 2, 4]
    assert (short.status, short.info["rounds"], short.info["params"]) == ("done", 4, 7)
    assert "value" not in short.info  # it belongs to the longer run
    assert truncate_record(long, 6) is long
    assert truncate_record(long, 5).test == []  # not evaluated after round 5
