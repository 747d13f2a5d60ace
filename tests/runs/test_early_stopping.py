"""Early stopping: the rule, the record of a stopped run, resumed runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small
from own_clients import assert_refused, make_task, train
from sweeps import find_trials, modification_times, read_table, run_sweep
from written import read_info, read_lines

from fedopt.errors import ConfigError
from fedopt.runs.config import StopSection, read_config
from fedopt.runs.early_stopping import has_stopped_improving
from fedopt.runs.records import read_run


@pytest.mark.parametrize(
    ("values", "patience", "min_delta", "lower", "expected"),
    [
        ([0.1, 0.2, 0.3], 1, 0.0, False, False),
        ([0.1, 0.3, 0.3], 1, 0.0, False, True),  # equal is no improvement
        ([0.1, 0.3, 0.2, 0.25], 3, 0.0, False, False),
        ([0.1, 0.3, 0.2, 0.25, 0.3], 3, 0.0, False, True),
        ([0.1, 0.3, 0.2, 0.31, 0.2], 2, 0.0, False, False),  # an improvement starts the count again
        ([0.5, 0.55, 0.6], 2, 0.2, False, True),
        ([0.5, 0.55, 0.75], 2, 0.2, False, False),  # small steps add up
        ([1.0, 0.5, 0.4], 1, 0.0, True, False),
        ([1.0, 0.5, 0.6], 1, 0.0, True, True),
        ([0.1, None, None], 2, 0.0, False, True),  # values that are not finite
        ([0.3, 0.2, 0.1], 0, 0.0, False, False),  # off
        ([], 1, 0.0, False, False),
    ],
)
def test_rule(
    values: list[float | None], patience: int, min_delta: float, lower: bool, expected: bool
) -> None:
    lines = [{"metric": value} for value in values]
    stop = StopSection(metric="metric", patience=patience, min_delta=min_delta)
    assert has_stopped_improving(lines, stop, lower) is expected


# The accuracy of 60 examples never improves by more than 1, so the third evaluation after round 0 stops.
NEVER_ENOUGH = {"stop.patience": 3, "stop.min_delta": 1.0, "eval.every": 2, "eval.last_every": 100}
ROUNDS = 20


def test_run_ends_when_the_metric_stops_improving(tmp_path: Path) -> None:
    out, task = tmp_path / "run", make_task()
    result = train(task, ROUNDS, config=NEVER_ENOUGH, out=out)
    info, record = read_info(out), read_run(out)
    assert [line["round"] for line in result.test] == [0, 2, 4, 6]
    assert result.rounds == 6
    assert (info["status"], info["rounds"], info["rounds_done"]) == ("done", ROUNDS, 6)
    assert record.stopped_early and "accuracy" in info["message"]
    assert result.x_sha256 == train(task, 6).x_sha256 == info["x_sha256"]
    stop = read_config(out / "config.toml").stop
    assert (stop.metric, stop.patience, stop.min_delta) == ("accuracy", 3, 1.0)


def test_loss_stops_when_it_no_longer_falls(tmp_path: Path) -> None:
    frozen = {"client.lr": 1e-30, "stop.patience": 1, "stop.metric": "loss", "eval.every": 1}
    assert train(make_task(), ROUNDS, config=frozen).rounds == 1
    falling = train(make_task(), 4, config=frozen | {"client.lr": 0.1})
    losses = [line["loss"] for line in falling.test]
    assert falling.rounds == 4 and losses == sorted(losses, reverse=True)


def test_run_without_early_stopping_keeps_its_identity() -> None:
    from fedopt.runs.resolve import resolve

    plain = resolve(small.SMALL, "fedavg", {})
    stopping = resolve(small.SMALL, "fedavg", {"stop.patience": 2})
    assert plain.stop.patience == 0
    assert plain.short_hash() == stopping.short_hash()
    assert "stop" not in plain.identity()


@pytest.mark.parametrize("every", [1, 100])
def test_resumed_run_stops_where_the_uninterrupted_run_does(every: int, tmp_path: Path) -> None:
    settings = NEVER_ENOUGH | {"checkpoint.every": every}
    whole = small.run(settings=settings | {"rounds": ROUNDS}, out=tmp_path / "whole")
    for last in (3, 5):
        small.run(settings=settings | {"rounds": ROUNDS}, out=tmp_path / "run", until=last)
    resumed = small.run(settings=settings | {"rounds": ROUNDS}, out=tmp_path / "run")
    assert whole.rounds == resumed.rounds == 6
    assert resumed.x_sha256 == whole.x_sha256
    assert read_lines(tmp_path / "run") == read_lines(tmp_path / "whole")


def test_finished_run_is_returned_and_more_patience_continues_it(tmp_path: Path) -> None:
    out, task, rounds = tmp_path / "run", make_task(), []

    def run(config: dict[str, Any]) -> Any:
        return train(
            task, 12, config=config, out=out, callback=lambda step: rounds.append(step.position.round)
        )

    first = run(NEVER_ENOUGH)
    again = run(NEVER_ENOUGH)
    assert rounds == list(range(7)) and again.x_sha256 == first.x_sha256
    rounds.clear()
    longer = run(NEVER_ENOUGH | {"stop.patience": 4})
    assert rounds == [7, 8] and longer.rounds == 8
    assert read_config(out / "config.toml").stop.patience == 4
    off = {key: value for key, value in NEVER_ENOUGH.items() if not key.startswith("stop")}
    assert run(off).rounds == 12
    assert read_info(out)["status"] == "done" and not read_run(out).stopped_early
    assert read_info(out)["x_sha256"] == train(task, 12).x_sha256


def test_invalid_settings_are_refused() -> None:
    def resolve_with(**settings: Any) -> None:
        train(make_task(), config={f"stop.{key}": value for key, value in settings.items()})

    assert_refused(lambda: resolve_with(metric="loss"), ConfigError, keys=("stop.metric",))
    assert_refused(lambda: resolve_with(min_delta=0.1), ConfigError, keys=("stop.min_delta",))
    assert_refused(lambda: resolve_with(patience=1, metric="acuracy"), ConfigError, keys=("stop.metric",))
    assert_refused(lambda: resolve_with(patience=-1), ConfigError, keys=("stop.patience",))
    assert_refused(lambda: resolve_with(patience=1, min_delta=-0.1), ConfigError, keys=("stop.min_delta",))


def test_sweep_scores_stopped_trials_at_their_end_and_does_not_repeat_them(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    settings = {"stop__patience": 1, "stop__min_delta": 1.0}
    options = {"grid": "client_lr=0|1, server_lr=0", "rounds": 6} | settings
    best = run_sweep(out, **options)["algorithms"]["fedavg"]["best"]
    assert [(row["status"], row["rounds"]) for row in read_table(out)] == [("done", "2")] * 2
    losses = [[line["loss"] for line in read_lines(path, "train")] for path in find_trials(out).values()]
    assert all(len(trial) == 2 for trial in losses)
    assert best["score"] == pytest.approx(min(sum(trial) / 2 for trial in losses), rel=1e-12)
    before = modification_times(out)
    run_sweep(out, **options)
    assert modification_times(out) == before
