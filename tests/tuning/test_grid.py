"""Grids: parsing, validation, the paper's grids and points."""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.algorithms import Algorithm, sgd
from fedopt.algorithms import fedopt as build_fedopt
from fedopt.errors import ConfigError, UnknownName, UserError
from fedopt.tasks import TASKS
from fedopt.tuning.grid import (
    LOG10_AXES,
    check_grid,
    edge_axes,
    grid_points,
    paper_grid,
    point_settings,
    read_grid,
    remove_foreign_axes,
    remove_unused_tau,
)

properties = settings(deadline=None, derandomize=True, max_examples=60)


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("client_lr=-3:0.5:0.5", {"client_lr": (-3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5)}),
        ("tau=-5:-1:1", {"tau": (-5, -4, -3, -2, -1)}),
        ("client_lr=-2|-1, server_lr=0", {"client_lr": (-2, -1), "server_lr": (0,)}),
        ("  client_lr = 0:1:1   tau=-3 ,", {"client_lr": (0, 1), "tau": (-3,)}),
        ("client.epochs=1|5, variant=as_run", {"client.epochs": (1, 5), "variant": ("as_run",)}),
        ("client_lr=0:1:0.3", {"client_lr": (0, 0.3, 0.6, 0.9)}),  # 1 is not a multiple of 0.3
        ("client_lr=-1|-1.0|0", {"client_lr": (-1, 0)}),
    ],
)
def test_read_grid_from_text(text: str, grid: dict[str, tuple[Any, ...]]) -> None:
    assert read_grid(text) == grid


def test_file_and_text_give_the_same_grid(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('client_lr = "-3:-2:0.5"\ntau = [-3, -2]\n[client]\nepochs = [1, 5]\n')
    assert read_grid(str(file)) == read_grid("client_lr=-3:-2:0.5, tau=-3|-2, client.epochs=1|5")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "grid"),
        (" , ", "grid"),
        ("client_lr", "grid"),
        ("client_lr=", "grid"),
        ("=1", "grid"),
        ("missing.toml", "grid"),
        ("client_lr=a", "client_lr"),
        ("client_lr=1:2", "client_lr"),
        ("client_lr=0:-3:0.5", "client_lr"),
        ("client_lr=-3:0:0", "client_lr"),
        ("client_lr=-3:0:-1", "client_lr"),
        ("client_lr=-3:0:1e-9", "client_lr"),  # more than 1000 values
        ("client_lr=nan", "client_lr"),
        ("client_lr=400", "client_lr"),  # outside float32
        ("client_lr=-1, client_lr=-2", "client_lr"),
        ("rounds=5|10", "rounds"),
        ("seed=1|2", "seed"),
        ("client.epochs=2020-01-01", "client.epochs"),
        ("client.lr=inf", "client.lr"),
    ],
)
def test_invalid_text_is_a_config_error_with_the_axis(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_grid(text)
    assert error.value.keys == (key,)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("axis", "suggestion"), [("cleint_lr", "client_lr"), ("tua", "tau")])
def test_unknown_axis_suggests_the_closest_name(axis: str, suggestion: str) -> None:
    with pytest.raises(UnknownName) as error:
        read_grid(f"{axis}=-1")
    assert error.value.name == axis and suggestion in error.value.allowed
    assert f"did you mean {suggestion!r}" in str(error.value)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ("client_lr = ", "grid"),
        ("", "grid"),
        ("client_lr = []", "client_lr"),
        ("client_lr = [[1]]", "client_lr"),
        ("client_lr = true", "client_lr"),
        ("client.epochs = [[1]]", "client.epochs"),
    ],
)
def test_invalid_file_is_a_config_error_with_the_axis(tmp_path: Path, content: str, key: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(content)
    with pytest.raises(ConfigError) as error:
        read_grid(str(file))
    assert error.value.keys == (key,)


@properties
@given(
    st.one_of(
        st.text(),
        st.text(alphabet="client_lrtaus=-:|.,0123456789e \n"),
        st.from_regex(r"(client_lr|tau|client\.epochs)=[-0-9.:|e]{1,20}(, ?\w+=[-0-9:|]+)?", fullmatch=True),
        st.text(alphabet=string.ascii_letters, min_size=300, max_size=5000),
    )
)
def test_any_text_is_a_finite_grid_or_a_user_error(text: str) -> None:
    try:
        grid = read_grid(text)
        check_grid(grid, {})
    except UserError as error:
        assert "\n" not in str(error) or "\n" in text
        return
    assert grid
    for axis, values in grid.items():
        assert 1 <= len(values) == len(set(values))
        if axis in LOG10_AXES:
            assert all(math.isfinite(10.0**value) for value in values)
    one = next(iter(grid_points(grid)))
    assert list(one) == list(grid) and len(point_settings(one)) == len(grid)


@properties
@given(
    first=st.integers(-60, 60),
    count=st.integers(0, 30),
    step=st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0]),
)
def test_range_has_both_ends_and_equal_steps(first: int, count: int, step: float) -> None:
    low = first * 0.1
    if abs(low + count * step) > 38:
        return
    (values,) = read_grid(f"client_lr={low:.6f}:{low + count * step:.6f}:{step}").values()
    assert len(values) == count + 1
    assert values[0] == pytest.approx(low, abs=1e-6)
    assert values[-1] == pytest.approx(low + count * step, abs=1e-6)
    assert all(b - a == pytest.approx(step, abs=2e-6) for a, b in zip(values, values[1:], strict=False))


def test_points_are_all_combinations_with_the_last_axis_fastest() -> None:
    assert list(grid_points({"client_lr": (0.0, 1.0), "tau": (-3.0, -2.0)})) == [
        {"client_lr": 0.0, "tau": -3.0},
        {"client_lr": 0.0, "tau": -2.0},
        {"client_lr": 1.0, "tau": -3.0},
        {"client_lr": 1.0, "tau": -2.0},
    ]


def test_edge_axes_are_log10_axes_with_an_extreme_value() -> None:
    grid = {"client_lr": (-2.0, -1.0, 0.0), "server_lr": (0.0, 1.0), "client.epochs": (1, 2, 3)}
    grid["tau"] = (-3.0,)  # a single value was not tuned
    point = {"client_lr": -2.0, "server_lr": 1.0, "client.epochs": 1, "tau": -3.0}
    assert edge_axes(point, grid) == ["client_lr", "server_lr"]
    assert edge_axes(point | {"client_lr": -1.0}, grid) == ["server_lr"]


@pytest.mark.parametrize(  # the paper's appendix on grids: so_lr client 10^-1..10^3, server 10^-2..10^1.5
    ("task", "algorithm", "sizes"),
    [
        ("so_lr", "fedadagrad", {"client_lr": 9, "server_lr": 8, "tau": 5}),
        ("so_lr", "fedavg", {"client_lr": 9, "server_lr": 8}),
        ("so_nwp", "fedyogi", {"client_lr": 8, "server_lr": 9, "tau": 5}),
    ],
)
def test_paper_grid_has_tau_for_adaptive_methods_only(
    task: str, algorithm: str, sizes: dict[str, int]
) -> None:
    grid = paper_grid(TASKS[task], algorithm)
    assert {axis: len(values) for axis, values in grid.items()} == sizes


def test_task_without_settings_has_no_grid() -> None:
    class Task:
        name, settings = "own", None

    with pytest.raises(ConfigError) as error:
        paper_grid(Task(), "fedavg")  # type: ignore[arg-type]
    assert error.value.keys == ("grid",)


def test_tau_axis_depends_on_the_server_optimizer() -> None:
    grid = {"client_lr": (0.0,), "tau": (-3.0,)}
    task = TASKS["so_lr"]
    assert remove_unused_tau(grid, task, "fedopt", {"server.optimizer": "adam"}) == grid
    assert remove_unused_tau(grid, task, "fedopt", {"server.optimizer": "sgd"}) == {"client_lr": (0.0,)}
    with pytest.raises(UnknownName) as error:
        remove_unused_tau(grid, task, "fedadm")
    assert error.value.name == "fedadm" and "fedadam" in error.value.allowed


@pytest.mark.parametrize(
    ("grid", "settings", "key"),
    [
        ({"client_lr": (0.0,)}, {"client.lr": 0.1}, "client.lr"),
        ({"client_lr": (0.0,), "client.lr": (0.1,)}, {}, "client.lr"),
        ({"client_lr": tuple(range(1000)), "tau": tuple(range(1000))}, {}, "grid"),
    ],
)
def test_conflicting_or_too_large_grid_is_a_config_error(
    grid: dict[str, Any], settings: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_grid(grid, settings)
    assert error.value.keys == (key,)


def test_axis_of_another_algorithm_is_removed() -> None:
    grid = {"client_lr": (-1.0, 0.0), "client.alpha": (0.1, 0.5)}

    def own(*, alpha: float = 0.1) -> Algorithm:
        return build_fedopt(sgd(), sgd())

    assert remove_foreign_axes(grid, TASKS["so_lr"], own, ("fedavg", own)) == grid
    assert remove_foreign_axes(grid, TASKS["so_lr"], "fedavg", ("fedavg", own)) == {"client_lr": (-1.0, 0.0)}
    assert remove_foreign_axes(grid, TASKS["so_lr"], "fedavg", ("fedavg",)) == grid  # an error names the key
