"""Seeds: confidence intervals, paired comparisons, the option --seeds, and groups of runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedopt.errors import ConfigError
from fedopt.intervals import confidence_interval, is_noise, paired_difference
from fedopt.reports.seeds import group_seeds, parse_seeds
from fedopt.runs.records import RunRecord, read_run

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)
repeatable = settings(deadline=None, derandomize=True, max_examples=60)


def write_run(path: Path, algorithm: str = "fedavg", seed: int = 0, **changes: Any) -> RunRecord:
    """Write a run directory. `changes` are settings of its configuration, such as client__lr."""
    config: dict[str, Any] = {"seed": seed, "rounds": 4, "client": {"lr": 0.1}, "server": {"lr": 1.0}}
    for key, value in changes.items():
        table, _, name = key.rpartition("__")
        (config[table] if table else config)[name] = value
    path.mkdir(parents=True)
    info = {"task": "emnist_cr", "algorithm": algorithm, "seed": seed, "status": "done", "data": "synthetic"}
    (path / "run.json").write_text(json.dumps(info))
    (path / "config.toml").write_text(tomli_w.dumps(config))
    line = {"round": 1, "split": "test", "loss": 1.0, "accuracy": 0.5}
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return read_run(path)


def test_interval_equals_the_value_computed_by_hand() -> None:
    """1, 2, 3, 4, 5: mean 3, s = sqrt(2.5), and t is 2.776 for four degrees of freedom."""
    mean, half_width, n = confidence_interval([1, 2, 3, 4, 5])
    assert (mean, n) == (3.0, 5)
    assert half_width == pytest.approx(2.776445 * math.sqrt(2.5) / math.sqrt(5), rel=1e-6)


@given(VALUES)
@repeatable
def test_interval_equals_that_of_scipy(values: list[float]) -> None:
    mean, half_width, n = confidence_interval(values)
    assert n == len(values) and half_width is not None
    tiny = 1e-9 * (max(map(abs, values)) + 1)
    if half_width > tiny:  # scipy has no interval for equal values
        low, high = stats.t.interval(0.95, n - 1, loc=np.mean(values), scale=stats.sem(values))
        assert (mean - half_width, mean + half_width) == pytest.approx((low, high), rel=1e-6, abs=tiny)


def test_one_value_has_no_half_width_and_no_value_is_an_error() -> None:
    assert confidence_interval([0.25]) == (0.25, None, 1)
    with pytest.raises(ValueError, match="at least one"):
        confidence_interval([])


def test_equal_values_have_a_half_width_of_zero() -> None:
    assert confidence_interval([0.5, 0.5, 0.5]) == (0.5, 0.0, 3)


@given(VALUES, st.floats(-2, 2))
@repeatable
def test_noise_agrees_with_a_paired_t_test(values: list[float], shift: float) -> None:
    draws = np.random.Generator(np.random.Philox(len(values))).normal(size=len(values))
    a = dict(enumerate(values))
    b = {seed: value + shift + draw for (seed, value), draw in zip(a.items(), draws, strict=True)}
    p = float(stats.ttest_rel(list(a.values()), list(b.values())).pvalue)
    if abs(p - 0.05) > 1e-6:
        assert is_noise(paired_difference(a, b)) == is_noise(paired_difference(b, a)) == (p > 0.05)


def test_paired_difference_uses_common_seeds_only() -> None:
    a = {0: 0.50, 1: 0.60, 2: 0.70, 9: 0.0}
    steady = {0: 0.51, 1: 0.611, 2: 0.709, 7: 5.0}  # differences of 0.010, 0.011, 0.009: t = 17.3 > 4.30
    difference = paired_difference(steady, a)
    assert difference == pytest.approx((0.010, 4.302653 * 0.001 / math.sqrt(3), 3), rel=1e-6)
    assert is_noise(difference) is False
    loose = {0: 0.60, 1: 0.55, 2: 0.72}  # 0.10, -0.05, 0.02: t = 0.53
    assert is_noise(paired_difference(a, loose)) is True


def test_noise_is_unknown_with_fewer_than_two_common_seeds() -> None:
    one = paired_difference({0: 0.5, 1: 0.6}, {0: 0.9, 5: 0.1})
    assert one == (pytest.approx(-0.4), None, 1) and is_noise(one) is None
    assert paired_difference({0: 0.5}, {1: 0.5}) is None and is_noise(None) is None


def test_equal_methods_are_within_noise_and_a_constant_difference_is_not() -> None:
    a = {0: 0.25, 1: 0.5}
    assert is_noise(paired_difference(a, a)) is True
    assert is_noise(paired_difference(a, {0: 0.5, 1: 0.75})) is False


@pytest.mark.parametrize(
    ("text", "seeds"), [("0:5", [0, 1, 2, 3, 4]), ("7:8", [7]), ("3,5,8", [3, 5, 8]), ("4", [4])]
)
def test_parse_seeds_accepts_a_range_or_a_list(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5:0", "has no seeds"),
        ("3:3", "has no seeds"),
        ("a:b", "0:5"),
        ("1:2:3", "0:5"),
        ("", "3,5,8"),
        ("1,,2", "3,5,8"),
        ("1,2,1", "twice"),
        ("-1:2", "the seed -1; allowed: 0 to 4294967295"),
        ("4294967296", "allowed: 0 to"),
        ("0:1000000000", "1,000,000,000 seeds; allowed: 1 to 1000"),
    ],
)
def test_parse_seeds_rejects_other_text(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_seeds(text)
    assert caught.value.keys == ("seeds",)
    assert f"--seeds {text!r}" in str(caught.value) and why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_runs_that_differ_in_seed_and_rounds_form_one_group(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", "fedyogi", 2),
        write_run(tmp_path / "b", "fedavg", 10),
        write_run(tmp_path / "c", "fedyogi", 0, rounds=9),
        write_run(tmp_path / "d", "fedavg", 9),
        write_run(tmp_path / "e", "fedyogi", 1, client__lr=10**-1.5),
    ]
    found = group_seeds(runs)
    assert [[run.path.name for run in group.records] for group in found] == [["c", "a"], ["d", "b"], ["e"]]
    assert [group.label for group in found] == [
        "fedyogi (client.lr 0.1)",
        "fedavg",
        "fedyogi (client.lr 0.03162)",
    ]


def test_group_label_does_not_contain_the_seed(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{lr}-{seed}", seed=seed, client__lr=lr, server__lr=2 * lr)
        for lr, seeds in ((0.1, (0, 1)), (0.2, (5, 6)))
        for seed in seeds
    ]
    assert [group.label for group in group_seeds(runs)] == [
        "fedavg (client.lr 0.1, server.lr 0.2)",
        "fedavg (client.lr 0.2, server.lr 0.4)",
    ]


def test_repeated_seed_starts_another_group(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name / f"seed-{seed}", seed=seed) for name in "ab" for seed in (0, 1)]
    assert [[run.config["seed"] for run in group.records] for group in group_seeds(runs)] == [[0, 1], [0, 1]]
    assert len({group.label for group in group_seeds(runs)}) == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
@repeatable
def test_every_run_is_in_one_group_and_labels_are_unique(drawn: list[tuple[str, int]]) -> None:
    runs = [
        RunRecord(
            Path(f"{at}"), {"task": "t", "algorithm": name, "data": "synthetic"}, {"seed": seed}, [], []
        )
        for at, (name, seed) in enumerate(drawn)
    ]
    found = group_seeds(runs)
    assert sorted(str(run.path) for group in found for run in group.records) == sorted(
        str(r.path) for r in runs
    )
    assert len({group.label for group in found}) == len(found)
    for group in found:
        seeds = [run.config["seed"] for run in group.records]
        assert seeds == sorted(set(seeds)) and len({run.label for run in group.records}) == 1


def test_group_state_is_the_worst_state_and_only_complete_runs_count(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    statuses = ("done", "running", "pruned")
    runs = [r._replace(info=r.info | {"status": s}) for r, s in zip(runs, statuses, strict=True)]
    (group,) = group_seeds(runs)
    assert (group.state, group.counted) == ("pruned", (runs[0],))
    (group,) = group_seeds(runs[1:2])
    assert (group.state, group.counted) == ("unfinished", (runs[1],))
