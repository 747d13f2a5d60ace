"""Grids, scores and searches, without processes: what is tried, in which order, and who wins."""

from __future__ import annotations

import json
import math
import random
import shlex
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.errors import UserError
from fedopt.runs.prepare import RunRequest
from fedopt.runs.records import RunRecord
from fedopt.runs.resolve import parse_settings
from fedopt.sweep import tpe
from fedopt.sweep.grid import (
    LOG10_AXES,
    applicable,
    check_grid,
    edges,
    paper_grid,
    points,
    read_grid,
    settings_of,
)
from fedopt.sweep.searches import (
    GridSearch,
    Halving,
    Search,
    Several,
    halving_sizes,
    rungs,
    seen_rungs,
    window,
)
from fedopt.sweep.slots import Order
from fedopt.sweep.tpe import Tpe
from fedopt.sweep.trials import (
    Trial,
    check_selection,
    is_over,
    lower_is_better,
    score,
    score_so_far,
    trial,
)
from fedopt.tasks import TASKS

properties = settings(deadline=None, derandomize=True, max_examples=60)


# -- grids as they are written


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
def test_a_grid_in_text_has_these_values(text: str, grid: dict[str, tuple[Any, ...]]) -> None:
    assert read_grid(text) == grid


def test_a_grid_in_a_file_is_the_same_as_in_text(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('client_lr = "-3:-2:0.5"\ntau = [-3, -2]\n[client]\nepochs = [1, 5]\n')
    assert read_grid(str(file)) == read_grid("client_lr=-3:-2:0.5, tau=-3|-2, client.epochs=1|5")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        (" , ", ["empty"]),
        ("client_lr", ["'client_lr'", "axis=first:last:step"]),
        ("client_lr=", ["client_lr"]),
        ("=1", ["'=1'"]),
        ("cleint_lr=-1", ["cleint_lr", "did you mean 'client_lr'"]),
        ("tua=-1", ["tua", "did you mean 'tau'"]),
        ("client_lr=a", ["client_lr=a", "first:last:step"]),
        ("client_lr=1:2", ["client_lr=1:2"]),
        ("client_lr=0:-3:0.5", ["no values", "first <= last"]),
        ("client_lr=-3:0:0", ["no values", "step above 0"]),
        ("client_lr=-3:0:-1", ["no values"]),
        ("client_lr=-3:0:1e-9", ["more than 1000"]),
        ("client_lr=nan", ["nan"]),
        ("client_lr=400", ["400", "-38 to 38"]),
        ("client_lr=-1, client_lr=-2", ["twice"]),
        ("rounds=5|10", ["--rounds"]),
        ("seed=1|2", ["--seeds"]),
        ("client.epochs=2020-01-01", ["client.epochs", "numbers or words"]),
        ("client.lr=inf", ["not finite"]),
        ("missing.toml", ["missing.toml", "cannot be read"]),
    ],
)
def test_a_grid_with_a_mistake_is_refused_in_one_line(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        read_grid(text)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("client_lr = ", ["grid.toml: Invalid value"]),
        ("", ["no axis"]),
        ("client_lr = []", ["client_lr has no values"]),
        ("client_lr = [[1]]", ["numbers or words"]),
        ("client_lr = true", ["log10"]),
    ],
)
def test_a_file_with_a_mistake_is_refused_in_one_line(tmp_path: Path, content: str, words: list[str]) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(content)
    with pytest.raises(UserError) as refused:
        read_grid(str(file))
    assert all(word in str(refused.value) for word in words), refused.value


@properties
@given(
    st.one_of(
        st.text(),
        st.text(alphabet="client_lrtaus=-:|.,0123456789e \n"),
        st.from_regex(r"(client_lr|tau|client\.epochs)=[-0-9.:|e]{1,20}(, ?\w+=[-0-9:|]+)?", fullmatch=True),
        st.text(alphabet=string.ascii_letters, min_size=300, max_size=5000),
    )
)
def test_any_text_is_a_grid_of_finite_values_or_a_user_error(text: str) -> None:
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
    one = next(iter(points(grid)))
    assert list(one) == list(grid) and len(settings_of(one)) == len(grid)


@properties
@given(
    first=st.integers(-60, 60),
    count=st.integers(0, 30),
    step=st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0]),
)
def test_a_range_holds_both_ends_and_equal_steps(first: int, count: int, step: float) -> None:
    low = first * 0.1
    if abs(low + count * step) > 38:
        return
    (values,) = read_grid(f"client_lr={low:.6f}:{low + count * step:.6f}:{step}").values()
    assert len(values) == count + 1
    assert values[0] == pytest.approx(low, abs=1e-6)
    assert values[-1] == pytest.approx(low + count * step, abs=1e-6)
    assert all(b - a == pytest.approx(step, abs=2e-6) for a, b in zip(values, values[1:], strict=False))


def test_points_are_all_combinations_with_the_last_axis_fastest() -> None:
    assert list(points({"client_lr": (0.0, 1.0), "tau": (-3.0, -2.0)})) == [
        {"client_lr": 0.0, "tau": -3.0},
        {"client_lr": 0.0, "tau": -2.0},
        {"client_lr": 1.0, "tau": -3.0},
        {"client_lr": 1.0, "tau": -2.0},
    ]


def test_edges_are_where_a_wider_grid_may_hold_a_better_point() -> None:
    grid = {"client_lr": (-2.0, -1.0, 0.0), "server_lr": (0.0, 1.0), "client.epochs": (1, 2, 3)}
    grid["tau"] = (-3.0,)  # one value is given, not tuned; two cannot have the best between them
    point = {"client_lr": -2.0, "server_lr": 1.0, "client.epochs": 1, "tau": -3.0}
    assert edges(point, grid) == ["client_lr", "server_lr"]
    assert edges(point | {"client_lr": -1.0}, grid) == ["server_lr"]


@pytest.mark.parametrize(  # the paper's appendix on grids: so_lr client 10^-1..10^3, server 10^-2..10^1.5
    ("task", "algorithm", "sizes"),
    [
        ("so_lr", "fedadagrad", {"client_lr": 9, "server_lr": 8, "tau": 5}),
        ("so_lr", "fedavg", {"client_lr": 9, "server_lr": 8}),
        ("so_nwp", "fedyogi", {"client_lr": 8, "server_lr": 9, "tau": 5}),
    ],
)
def test_the_papers_grid_has_tau_for_adaptive_methods_only(
    task: str, algorithm: str, sizes: dict[str, int]
) -> None:
    grid = paper_grid(TASKS[task], algorithm)
    assert {axis: len(values) for axis, values in grid.items()} == sizes


def test_the_papers_grid_of_a_task_that_it_has_not_is_refused() -> None:
    class Without:
        name, paper = "own", None

    with pytest.raises(UserError, match="no grid for own"):
        paper_grid(Without(), "fedavg")  # type: ignore[arg-type]


def test_tau_follows_the_optimizer_that_is_chosen_beside_the_grid() -> None:
    grid = {"client_lr": (0.0,), "tau": (-3.0,)}
    task = TASKS["so_lr"]
    assert applicable(grid, task, "fedopt", {"server.optimizer": "adam"}) == grid
    assert applicable(grid, task, "fedopt", {"server.optimizer": "sgd"}) == {"client_lr": (0.0,)}
    with pytest.raises(UserError, match="did you mean 'fedadam'"):
        applicable(grid, task, "fedadm")


@pytest.mark.parametrize(
    ("grid", "settings", "words"),
    [
        ({"client_lr": (0.0,)}, {"client.lr": 0.1}, "--set client.lr and the axis client_lr"),
        ({"client_lr": (0.0,), "client.lr": (0.1,)}, {}, "two axes for client.lr"),
        ({"client_lr": tuple(range(1000)), "tau": tuple(range(1000))}, {}, "1,000,000 points"),
    ],
)
def test_a_grid_that_contradicts_itself_or_the_settings_is_refused(
    grid: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        check_grid(grid, settings)


# -- trials


def test_a_trial_is_found_by_what_it_computes_and_not_by_its_length(tmp_path: Path) -> None:
    def at(rate: float, **more: Any) -> Trial:
        return trial(tmp_path, "so_lr", "fedavg", {"client_lr": rate}, {"rounds": 5} | more)

    assert at(-1.0).config.client.lr == 0.1
    assert at(-1.0).path == at(-1.0, rounds=50).path
    assert len({at(-1.0).path, at(-2.0).path, at(-1.0, seed=1).path}) == 3


@pytest.mark.parametrize("value", ["10", "true", "as_run", "1e-3", '"', "", "a b", True, 5, 0.1 + 0.2, 1e-7])
def test_the_command_of_a_trial_reads_back_as_its_settings(value: Any) -> None:
    words = shlex.split(
        RunRequest("so_lr", "fedavg", {"key": value, "rounds": 7}, "some dir").command(Path("o"))
    )
    assert words[:5] == ["fedopt", "run", "so_lr", "--algorithm", "fedavg"]
    read = parse_settings([words[words.index("--set") + 1]])["key"]
    assert (read, type(read)) == (value, type(value))
    assert words[words.index("--rounds") + 1] == "7" and words[words.index("--data") + 1] == "some dir"


# -- scores


def record(
    losses: Sequence[float | None],
    status: str = "done",
    tests: Mapping[int, float] | None = None,
    every: int = 2,
    last_every: int = 2,
    **info: Any,
) -> RunRecord:
    train = [
        {"round": t, "split": "train", "loss": loss, "clients": 0 if loss is None else 2, "rejected": 2}
        for t, loss in enumerate(losses, 1)
    ]
    test = [{"round": t, "split": "test", "recall_at_5": v} for t, v in (tests or {}).items()]
    config = {"eval": {"every": every, "last_every": last_every}}
    return RunRecord(Path("r"), {"status": status, "algorithm": "a", **info}, config, train, test)


def test_the_papers_rule_is_the_mean_train_loss_of_the_last_100_rounds() -> None:
    losses = [1000.0] * 50 + [float(t) for t in range(1, 101)]
    assert score(record(losses), "train_loss", 150) == 50.5
    assert score(record(losses), "train_loss", 150, last=2) == 99.5
    assert score(record(losses[:50] + [2.0] * 50), "train_loss", 100) == 501.0


def test_a_longer_run_scores_as_a_run_of_the_asked_length_would() -> None:
    losses = [4.0, 2.0, 100.0, 100.0]
    assert score(record(losses), "train_loss", 2) == 3.0
    assert score(record(losses), "train_loss", 5) is None  # has not come that far


def test_a_metric_is_the_mean_over_the_evaluations_of_such_a_run_and_not_of_others() -> None:
    # a run of 25 that was extended to 30; every=50 and last_every=10 evaluate 30, 20, 10 of a run of 30
    found = record([1.0] * 30, tests={0: 9.0, 5: 0.1, 15: 0.2, 25: 0.3, 30: 0.5}, every=50, last_every=10)
    assert score(found, "recall_at_5", 30) == 0.5
    assert score(found, "recall_at_5", 25) == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert score(found, "recall_at_5", 28) is None  # never evaluated there
    assert score(found, "precision", 30) is None


@pytest.mark.parametrize(
    ("losses", "status", "rounds", "expected"),
    [
        ([1.0, 2.0, None, None], "diverged", 4, None),
        ([1.0, 2.0, None, None], "diverged", 2, 1.5),  # had not diverged by then
        ([1.0, 2.0, None, None], "diverged", 3, None),  # on the way
        ([1.0, None, 3.0], "done", 3, 2.0),  # recovered
        ([1.0, 2.0, None], "done", 3, None),
        ([1.0, 2.0], "pruned", 2, 1.5),
        ([], "running", 1, None),
    ],
)
def test_a_trial_that_diverges_has_no_score_from_then_on(
    losses: list[float | None], status: str, rounds: int, expected: float | None
) -> None:
    assert score(record(losses, status), "train_loss", rounds) == expected


def test_on_the_way_a_metric_counts_where_it_was_measured_last() -> None:
    found = record([1.0] * 9, "running", tests={0: 9.0, 4: 0.4, 7: 0.7})
    assert score_so_far(found, "recall_at_5", 9, last=5) == 0.7
    assert score_so_far(found, "recall_at_5", 6, last=2) == 0.4
    assert score_so_far(found, "recall_at_5", 3, last=2) is None
    assert score_so_far(found, "train_loss", 3, last=2) == 1.0


@pytest.mark.parametrize(
    ("status", "done", "asked", "over"),
    [
        ("done", 5, 5, True),
        ("done", 5, 6, False),
        ("diverged", 3, 50, True),
        ("pruned", 5, 5, False),
        ("running", 5, 5, False),
        ("failed", 5, 5, False),
    ],
)
def test_a_trial_is_over_when_it_is_long_enough_or_diverged(
    status: str, done: int, asked: int, over: bool
) -> None:
    assert is_over(record([1.0] * done, status), asked) is over


def test_which_metrics_exist_and_which_way_is_better() -> None:
    lr, autoencoder = TASKS["so_lr"], TASKS["emnist_ae"]
    assert lower_is_better(lr, "train_loss") and lower_is_better(lr, "loss")
    assert not lower_is_better(lr, "recall_at_5") and not lower_is_better(lr, "precision")
    assert lower_is_better(autoencoder, autoencoder.metric)
    check_selection(lr, "precision")
    with pytest.raises(UserError, match="did you mean 'recall_at_5'"):
        check_selection(lr, "recall_at5")


# -- searches


GRID = {
    "client_lr": tuple(float(v) for v in range(-4, 1)),
    "server_lr": tuple(float(v) for v in range(-3, 2)),
}


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    """25 trials on a 5 x 5 grid; nothing is run."""
    return list(plan(GRID))


def plan(grid: Mapping[str, tuple[Any, ...]], rounds: int = 27) -> Iterator[Trial]:
    for point in points(grid):
        yield trial(Path("t"), "so_lr", "fedavg", point, {"rounds": rounds})


Loss = Callable[[Trial, int], float | None]  # score after so many rounds; None: diverged


class Played:
    """Carries out what a search orders, as the pool does, in an order of arrival that is drawn."""

    def __init__(self, search: Search, loss: Loss, slots: int, seed: int) -> None:
        draw = random.Random(seed)
        self.rounds: dict[str, int] = {}  # path -> rounds run
        self.orders: list[tuple[str, int]] = []  # path, rounds at the end
        running: list[Order] = []
        while True:
            while len(running) < slots and (order := search.next()) is not None:
                assert order.key not in {other.key for other in running}
                running.append(order)
            if not running:
                return
            order = running.pop(draw.randrange(len(running)))
            self._carry_out(search, order, loss)

    def _carry_out(self, search: Search, order: Order, loss: Loss) -> None:
        at = order.rounds
        for round in order.asks:
            value = loss(order.trial, round)
            if value is None or not search.goes_on(order.trial, round, value):
                at = round
                break
        self.rounds[order.key] = max(at, self.rounds.get(order.key, 0))
        self.orders.append((order.key, at))
        search.finished(order, loss(order.trial, at) if at == order.rounds else None)

    @property
    def work(self) -> int:
        return sum(self.rounds.values())


def bowl(trial: Trial, round: int) -> float:
    """Best at client_lr=-1, server_lr=0; falls with the rounds, at the same place all the time."""
    client, server = float(trial.point["client_lr"]), float(trial.point["server_lr"])
    return 1.0 + (client + 1) ** 2 + 0.5 * (server - 0) ** 2 + 1.0 / round


def best_of(played: Played, trials: Sequence[Trial], loss: Loss) -> Trial:
    whole = [t for t in trials if played.rounds.get(str(t.path)) == t.config.rounds]
    return min(whole, key=lambda t: (v := loss(t, t.config.rounds)) is None or v)


def test_the_grid_is_run_in_full_and_in_order(trials: list[Trial]) -> None:
    played = Played(GridSearch(Order(t, 27) for t in trials), bowl, slots=1, seed=0)
    assert played.orders == [(str(t.path), 27) for t in trials]


def test_halving_works_out_as_by_hand(trials: list[Trial]) -> None:
    assert rungs(25, 27) == [3, 9, 27] and halving_sizes(25, [1, 3, 9, 27]) == [25, 9, 3, 1]
    played = Played(Halving(trials, 27), bowl, slots=2, seed=0)
    assert len(played.orders) == 25 + 9 + 3
    assert played.work == 16 * 3 + 6 * 9 + 3 * 27  # 183 of 675 rounds
    assert best_of(played, trials, bowl).point == {"client_lr": -1.0, "server_lr": 0.0}


@pytest.mark.parametrize(
    ("rung", "rounds", "last"), [(1, 27, 1), (9, 27, 5), (27, 27, 100), (400, 1500, 100), (150, 1500, 75)]
)
def test_a_rung_is_judged_by_its_later_half_and_the_end_by_100_rounds(
    rung: int, rounds: int, last: int
) -> None:
    assert window(rung, rounds) == last


def test_rungs_are_where_a_metric_is_measured(trials: list[Trial]) -> None:
    config = trials[0].config  # evaluates a run of 27 rounds after 7, 17 and 27
    assert seen_rungs(25, config, "train_loss") == [3, 9, 27]
    assert seen_rungs(25, config, "recall_at_5") == [7, 17, 27]


@properties
@given(
    count=st.integers(1, 25),
    rounds=st.integers(1, 100),
    diverged=st.sets(st.integers(0, 24)),
    slots=st.integers(1, 5),
    seeds=st.tuples(st.integers(0, 999), st.integers(0, 999)),
)
def test_halving_ends_with_the_best_whatever_arrives_first(
    trials: list[Trial],
    count: int,
    rounds: int,
    diverged: set[int],
    slots: int,
    seeds: tuple[int, int],
) -> None:
    some, lost = trials[:count], {str(trials[at].path) for at in diverged}

    def loss(trial: Trial, round: int) -> float | None:
        slope = 1e-6 * trials.index(trial)  # no two alike: who is level with the last one would go on too
        return None if str(trial.path) in lost else bowl(trial, round) + slope

    played, other = (Played(Halving(some, rounds), loss, slots, seed) for seed in seeds)
    assert sorted(played.orders) == sorted(other.orders)
    known = [t for t in some if str(t.path) not in lost]
    if known:
        best = min(known, key=lambda t: bowl(t, 1) + 1e-6 * trials.index(t))
        assert played.rounds[str(best.path)] == rounds
    assert len(played.orders) <= sum(halving_sizes(count, rungs(count, rounds)))
    steps = {step for step in rungs(count, rounds)}
    assert {at for _, at in played.orders} <= steps


def test_algorithms_are_halved_separately() -> None:
    plans = [
        [trial(Path("t"), "so_lr", name, {"client_lr": v}, {"rounds": 9}) for v in (-1.0, 0.0, 1.0)]
        for name in ("fedavg", "fedadagrad")
    ]

    def loss(trial: Trial, round: int) -> float:
        return (1000.0 if trial.config.algorithm == "fedavg" else 0.0) + float(trial.point["client_lr"])

    played = Played(Several([Halving(part, 9) for part in plans]), loss, slots=2, seed=1)
    whole = [path for path, at in played.orders if at == 9]
    assert sorted(whole) == sorted(str(part[0].path) for part in plans)


# -- search by Optuna


def test_tpe_proposes_points_of_the_grid_once_and_finds_the_best(trials: list[Trial]) -> None:
    played = Played(Tpe(GRID, trials, 27, 12), bowl, slots=2, seed=0)
    assert len(played.orders) == len(played.rounds) == 12  # no point twice
    best = best_of(played, trials, bowl)
    assert bowl(best, 27) <= sorted(bowl(t, 27) for t in trials)[2]
    assert played.work < 12 * 27  # some were stopped on the way
    assert min(played.rounds.values()) >= 1


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.integers(1, 4), st.integers(0, 999), st.sets(st.integers(0, 24), max_size=12))
def test_tpe_tries_the_same_points_whatever_arrives_first_on_any_number_of_slots(
    trials: list[Trial], slots: int, seed: int, diverged: set[int]
) -> None:
    lost = {str(trials[at].path) for at in diverged}

    def loss(trial: Trial, round: int) -> float | None:
        return None if str(trial.path) in lost else bowl(trial, round)

    one_by_one = Played(Tpe(GRID, trials, 27, 12), loss, slots=1, seed=0)
    played = Played(Tpe(GRID, trials, 27, 12), loss, slots, seed)
    assert played.rounds == one_by_one.rounds


def test_tpe_tries_a_small_grid_in_full_and_then_stops() -> None:
    grid = {"client_lr": (-1.0, 0.0), "weighting": ("examples", "uniform")}
    few = [trial(Path("t"), "so_lr", "fedavg", point, {"rounds": 3}) for point in points(grid)]
    played = Played(Tpe(grid, few, 3, 100), lambda t, r: float(t.point["client_lr"]), slots=3, seed=0)
    assert sorted(played.rounds) == sorted(str(t.path) for t in few)


def test_tpe_stops_a_trial_that_is_worse_than_the_median_and_not_one_that_is_better(
    trials: list[Trial],
) -> None:
    search = Tpe(GRID, trials, 27, 12)
    for _ in range(tpe.LAG + 3):
        order = search.next()
        assert order is not None
        assert all(search.goes_on(order.trial, round, 1.0) for round in order.asks)
        search.finished(order, 1.0)
    worse, better = search.next(), search.next()
    assert worse is not None and better is not None
    assert not search.goes_on(worse.trial, worse.asks[0], 2.0)
    assert search.goes_on(better.trial, better.asks[0], 0.5)
    assert not search.goes_on(better.trial, better.asks[1], None)  # diverged


def test_without_optuna_one_line_says_how_to_get_it() -> None:
    with patch.dict("sys.modules", {"optuna": None}), pytest.raises(UserError) as refused:
        tpe.require()
    assert "pip install 'fedopt[optuna]'" in str(refused.value)


def test_the_points_of_a_trial_are_plain_values_for_json(trials: list[Trial]) -> None:
    assert json.loads(json.dumps(trials[0].point)) == {"client_lr": -4.0, "server_lr": -3.0}
