"""The paper's tables and figures: its numbers, what is planned, and what hand-made runs must come to."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from paperruns import TINY, study, write, write_all

from fedopt.cli import main
from fedopt.data.store import write_store
from fedopt.errors import UserError
from fedopt.formatting import format_duration
from fedopt.reproduction.artifacts import ARTIFACTS, GROUPS, chosen, read_tasks
from fedopt.reproduction.cost import Speed, total_seconds, trial_seconds
from fedopt.reproduction.draw_figures import best_server_rates, tau_reading
from fedopt.reproduction.draw_tables import Drawn
from fedopt.reproduction.published import DATASETS, settings
from fedopt.reproduction.reproduce import Request, reproduce
from fedopt.reproduction.scales import PAPER, SMALL, SMOKE
from fedopt.reproduction.sources import find_sources, suffix
from fedopt.reproduction.study import Study
from fedopt.reproduction.tables import Entry, Table, near_best, to_csv, with_bold

OPTIMIZERS = ("fedadagrad", "fedadam", "fedyogi", "fedavgm", "fedavg")

# Copied from the paper by hand; * is its bold.
PERFORMANCE = """
cifar10      72.1  77.4  78.0* 77.4  72.8
cifar100     47.9  52.5* 52.4* 52.4* 44.7
emnist_cr    85.1  85.6* 85.5* 85.2* 84.9
shakespeare  57.5* 57.0  57.2* 57.3* 56.9
so_nwp       23.8  25.2* 25.2* 23.8  19.5
so_lr        67.1* 65.8  65.9  36.9  30.0
emnist_ae    4.20  1.01  0.98* 1.65  6.47
"""
SO_TEST = """
so_nwp  24.4  25.7* 25.7* 24.5  20.5
so_lr   66.8* 65.2  66.5  46.5  40.6
"""
DECAY = """
Centralized  88.0  87.9  88.0  87.7  87.7
Constant     85.1  85.6  85.5  85.2  84.9
ExpDecay     85.3  86.2* 86.2* 85.8* 85.2
"""


def rows(text: str) -> dict[str, tuple[list[float], list[bool]]]:
    """A copied table: numbers, and which are bold."""
    found = {}
    for line in text.strip().splitlines():
        name, *cells = line.split()
        found[name] = [float(c.rstrip("*")) for c in cells], [c.endswith("*") for c in cells]
    return found


def drawn(name: str, place: Path, tasks: str | None = None, **options: object) -> Drawn:
    artifact = ARTIFACTS[name]
    made = study(place, read_tasks(tasks) if tasks else artifact.tasks, **options)  # type: ignore[arg-type]
    return artifact.drawn(made)


# -- the paper's numbers


@pytest.mark.parametrize("task", rows(PERFORMANCE))
def test_the_performance_table_and_its_bold_are_the_papers(task: str, tmp_path: Path) -> None:
    (table,) = drawn("performance", tmp_path, task).tables
    numbers, bold = rows(PERFORMANCE)[task]
    assert [entry.paper for entry in table.entries[:5]] == numbers
    assert [entry.paper_bold for entry in table.entries[:5]] == bold
    assert (table.entries[5].column, table.entries[5].paper_shown) == ("SCAFFOLD", "curve only")
    assert all(entry.shown == "" and entry.run is None for entry in table.entries)  # no run, no number


def test_the_stack_overflow_test_table_and_its_bold_are_the_papers(tmp_path: Path) -> None:
    (table,) = drawn("so_test", tmp_path).tables
    copied = rows(SO_TEST)
    assert [e.paper for e in table.entries] == copied["so_nwp"][0] + copied["so_lr"][0]
    bold = copied["so_nwp"][1] + copied["so_lr"][1]
    assert [e.paper_bold for e in table.entries] == bold  # 66.5 plain, which the paper's rule makes bold
    assert "66.5 beside 66.8" in table.note


def test_the_decay_table_is_the_papers_with_bold_over_both_federated_rows(tmp_path: Path) -> None:
    (table,) = drawn("decay", tmp_path).tables
    copied = list(rows(DECAY).values())
    assert [e.paper for e in table.entries] == [number for numbers, _ in copied for number in numbers]
    assert [e.paper_bold for e in table.entries] == [bold for _, marks in copied for bold in marks]


def test_rates_and_tau_are_the_papers(tmp_path: Path) -> None:
    copied = """
    cifar10     -1.5 -1 -1.5 -2 -1.5 -2 -1.5 -0.5 -0.5 0
    cifar100    -1 -1 -1.5 0 -1.5 0 -1.5 0 -1 0.5
    emnist_ae   1.5 -1.5 1 -1.5 1 -1.5 0.5 0 1 0
    emnist_cr   -1.5 -1 -1.5 -2.5 -1.5 -2.5 -1.5 -0.5 -1 0
    shakespeare 0 -0.5 0 -2 0 -2 0 -0.5 0 0
    so_lr       2 1 2 -0.5 2 -0.5 2 0 2 0
    so_nwp      -0.5 -1.5 -0.5 -2 -0.5 -2 -0.5 0 -0.5 0
    """
    taus = {"cifar10": (-2, -3, -3), "cifar100": (-2, -1, -1), "emnist_ae": (-3, -3, -3)}
    taus |= {"emnist_cr": (-2, -4, -4), "shakespeare": (-1, -3, -3), "so_lr": (-2, -5, -5)}
    taus |= {"so_nwp": (-4, -5, -5)}
    for task, (numbers, _) in rows(copied).items():
        (table,) = drawn("learning_rates", tmp_path, task).tables
        assert [e.paper for e in table.entries[:10]] == numbers
        assert [e.paper_shown for e in table.entries[10:]] == ["none printed"] * 2
        (table,) = drawn("tau_values", tmp_path, task).tables
        assert tuple(e.paper for e in table.entries) == taus[task]


def test_the_synthetic_twins_have_the_papers_statistics_and_say_that_they_are_synthetic(
    tmp_path: Path,
) -> None:
    (table,) = drawn("datasets", tmp_path).tables
    assert [tuple(DATASETS[name]) for name in ("cifar10", "cifar100", "emnist", "shakespeare")] == [
        (500, 50000, 100, 10000),
        (500, 50000, 100, 10000),
        (3400, 671585, 3400, 77483),
        (715, 16068, 715, 2356),
    ]
    stack_overflow = [e.paper for e in table.entries if e.row == "StackOverflow"]
    assert stack_overflow == [342477, 135818730, 204088, 16586035]
    assert {e.word for e in table.entries} == {"synthetic"}
    assert all(e.difference == 0 for e in table.entries)


# -- bold


@pytest.mark.parametrize(
    ("values", "higher", "relative", "bold"),
    [
        ([57.5, 57.0, 57.01], True, False, [True, False, True]),  # exactly half a point is not near
        ([4.2, 0.98, 0.9849, 0.985], False, True, [False, True, True, False]),  # 0.98 x 1.005 = 0.9849
        ([None, None], True, False, [False, False]),
        ([None, 1.0], True, False, [False, True]),
    ],
)
def test_bold_is_less_than_half_a_point_from_the_best(
    values: list[float | None], higher: bool, relative: bool, bold: list[bool]
) -> None:
    if relative:
        values = [0.98489 if value == 0.9849 else value for value in values]
    assert near_best([(value, True) for value in values], higher, relative) == bold


def test_scaffold_may_be_bold_but_does_not_set_the_best() -> None:
    five = [Entry("t", name, ours, 50.0, group="t") for name, ours in (("a", 40.0), ("b", 39.6), ("c", 39.4))]
    marked = with_bold([*five, Entry("t", "scaffold", 60.0, group="t", ranked=False)])
    assert [entry.ours_bold for entry in marked] == [True, True, False, True]
    assert not any(entry.paper_bold for entry in marked)  # that is the printer's, not worked out


# -- what is planned


def test_the_plans_have_the_papers_grids() -> None:
    made = study(Path(), scale=PAPER)
    cr = made.of("emnist_cr")
    assert len(made.sweep("emnist_cr", "fedadam")) == 8 * 9 * 5  # client, server, tau
    assert len(made.sweep("emnist_cr", "fedavg")) == len(made.sweep("emnist_cr", "scaffold")) == 8 * 9
    assert len(made.sweep("so_lr", "fedyogi")) == 9 * 8 * 5
    assert len(made.heat_map("emnist_ae", "fedadagrad")) == 8 * 7
    assert len(ARTIFACTS["learning_rates"].specs(cr)) == 72 * (3 * 5 + 3)
    assert len(ARTIFACTS["heatmaps_emnist_cr"].specs(cr)) == 72 * 5
    assert len(ARTIFACTS["performance"].specs(cr)) == 5 + 72
    # the same grids under decay, five optimizers x eight rates centralized, five constant runs
    assert len(ARTIFACTS["decay"].specs(cr)) == 72 * (3 * 5 + 2) + 5 * 8 + 5
    chosen_settings = dict(made.decayed("fedavg")[0].settings)
    assert (chosen_settings["client.schedule"], chosen_settings["client.decay_rounds"]) == ("staircase", 500)
    central = dict(made.centralized("adam")[0].settings)
    assert (central["rounds"], central["client.optimizer"]) == (100, "adam")
    config = made.trial(made.published("so_nwp", "fedyogi")).config
    assert (config.rounds, config.clients_per_round, config.variant) == (1500, 50, "as_run")
    assert (config.eval.final, config.eval.sample) == ("full", 10_000)
    assert made.trial(made.sweep("so_nwp", "fedyogi")[0]).config.eval.final == "sample"
    assert made.trial(made.published("emnist_cr", "fedavg")).config.eval.sample == 0  # the whole test set


def test_smoke_shares_runs_between_artifacts_and_holds_the_published_ones() -> None:
    made = study(Path(), scale=SMOKE)
    for task in made.tasks:
        for method in OPTIMIZERS:
            grid = made.sweep(task, method)
            assert made.published(task, method) in grid
            assert len(grid) == (8 if method in OPTIMIZERS[:3] else 4)
            assert any(spec.at.get("tau", -3.0) == -3.0 for spec in grid)
    everything = {spec for artifact in ARTIFACTS.values() for spec in artifact.specs(made)}
    # per task 3 x 8 + 2 x 4 + SCAFFOLD's 4; decay adds 5 x 4 and 5 optimizers x 2 rates
    assert len(everything) == 7 * 36 + 20 + 10
    config = made.trial(made.published("cifar100", "fedadam")).config
    assert (config.rounds, config.clients_per_round, config.client.steps) == (3, 2, 1)
    assert len({made.trial(spec).path for spec in everything}) == len(everything)


def test_small_grids_are_neighbours_of_the_papers_best_and_inside_its_grid() -> None:
    made = study(Path(), scale=SMALL)
    grid = made.sweep("so_lr", "fedadagrad")  # the paper's best: client 2, server 1, tau 1e-2
    assert {spec.at["client_lr"] for spec in grid} == {1.5, 2.0, 2.5}
    assert {spec.at["server_lr"] for spec in grid} == {0.5, 1.0, 1.5}
    assert {spec.at["tau"] for spec in grid} == {-3.0, -2.0}
    for task in made.tasks:
        for method in OPTIMIZERS:
            paper = settings(task)
            assert all(
                paper.client_grid.first <= s.at["client_lr"] <= paper.client_grid.last
                for s in made.sweep(task, method)
            )


def test_names_groups_and_tasks() -> None:
    assert len(GROUPS["curves"]) == len(GROUPS["heatmaps"]) == 7
    assert [a.name for a in chosen("curves", ("so_lr", "cifar10"))] == ["curves_cifar10", "curves_so_lr"]
    assert set(a.name for a in chosen("all", read_tasks(None))) == set(ARTIFACTS)
    assert read_tasks("so_lr, cifar10") == ("cifar10", "so_lr")
    for call, says in (
        (lambda: chosen("perfomance", ("so_lr",)), "did you mean 'performance'"),
        (
            lambda: chosen("so_test", ("cifar10",)),
            "so_test has none of --tasks cifar10; it has so_nwp, so_lr",
        ),
        (lambda: read_tasks("mnist"), "unknown task in --tasks 'mnist'"),
        (lambda: read_tasks(" , "), "--tasks names none"),
    ):
        with pytest.raises(UserError, match=re.escape(says)):
            call()


# -- hand-made runs


def test_the_performance_table_shows_values_differences_links_and_what_diverged(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    run = write(made, made.published("emnist_cr", "fedadam"), 0.80)
    write(made, made.published("emnist_cr", "fedyogi"), 0.7951)
    write(made, made.published("emnist_cr", "fedavg"), None, status="diverged")
    for at, spec in enumerate(made.sweep("emnist_cr", "scaffold")):  # the smallest training loss is the third
        write(made, spec, 0.7 + at / 100, train_loss=(3.0, 2.0, 1.0, 1.5)[at])
    cells = {e.column: e for e in ARTIFACTS["performance"].drawn(made).tables[0].entries}
    assert cells["FedAdam"].ours == pytest.approx(80.0) and cells["FedAdam"].run == run
    assert cells["FedAdam"].difference == pytest.approx(80.0 - 85.6)
    assert (cells["FedAdam"].ours_bold, cells["FedYogi"].ours_bold) == (True, True)  # 79.51 is 0.49 below
    assert (cells["FedAvg"].ours, cells["FedAvg"].shown) == (None, "diverged")
    assert cells["FedAvgM"].shown == ""
    assert cells["SCAFFOLD"].ours == pytest.approx(72.0)
    assert cells["SCAFFOLD"].detail == "(log10 η_l = −1, log10 η = −0.5)"
    assert cells["SCAFFOLD"].difference is None


def test_a_sweep_has_no_winner_before_it_is_over(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    specs = made.sweep("emnist_cr", "fedavg")
    for spec in specs[:3]:
        write(made, spec, train_loss=1.0)
    assert made.winner(specs)[:4] == (specs[0], None, "1 of 4 to run", None)
    write(made, specs[3], None, status="diverged")
    made.forget()
    assert made.winner(specs).value == 1.0


def test_learning_rates_and_tau_are_those_of_the_smallest_training_loss(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    best = {"client_lr": -2.0, "server_lr": -2.5, "tau": -3.0}
    for spec in made.sweep("emnist_cr", "fedadam"):
        found = spec.at == best
        write(
            made, spec, 0.2 if found else 0.9, train_loss=0.5 if found else 0.6
        )  # validation must not count
    cells = {e.column: e for e in ARTIFACTS["learning_rates"].drawn(made).tables[0].entries}
    assert [cells[f"FedAdam log10 {symbol}"].ours for symbol in ("η_l", "η")] == [-2.0, -2.5]
    assert [cells[f"FedAdam log10 {symbol}"].difference for symbol in ("η_l", "η")] == [-0.5, 0.0]
    taus = {e.column: e for e in ARTIFACTS["tau_values"].drawn(made).tables[0].entries}
    adam = taus["FedAdam log10 τ"]
    assert (adam.ours, adam.paper, adam.difference) == (-3.0, -4.0, 1.0)
    assert taus["FedYogi log10 τ"].shown == ""


def test_both_readings_of_the_tau_figure(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    values, losses = iter((0.5, 0.6, 0.7, 0.8)), iter((1.0, 0.4, 0.9, 0.8))
    for spec in made.sweep("emnist_cr", "fedadam"):
        if spec.at["tau"] == -3.0:
            write(made, spec, next(values), train_loss=next(losses))
        else:
            write(made, spec, 0.1, train_loss=9.0)
    a_posteriori = tau_reading(made, "emnist_cr", "fedadam", "best by validation")
    by_training = tau_reading(made, "emnist_cr", "fedadam", "chosen by training loss")
    assert a_posteriori[-3.0].value == 0.8
    assert by_training[-3.0].value == 0.6  # the smallest training loss, 0.4
    assert a_posteriori[-4.0].value == by_training[-4.0].value == 0.1
    entries = ARTIFACTS["tau"].drawn(made).tables[0].entries
    shown = {(e.row, e.column): e.ours for e in entries}
    assert shown["FedAdam, best by validation", "τ = 1e−3"] == pytest.approx(80.0)


def test_client_rates_that_never_moved_the_initial_loss_are_omitted(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    for spec in made.sweep("emnist_cr", "fedavg"):
        client, server = spec.at["client_lr"], spec.at["server_lr"]  # -1.5 and -1; -0.5 and 0
        if client == -1.5:  # 2.0 -> 1.8 is 10 % and not more
            write(made, spec, 0.3 if server == 0 else 0.2, losses=(2.0, 1.8))
        else:  # one of the two moved; the best by validation is the other
            write(made, spec, 0.5 if server == 0 else 0.6, losses=(2.0, 1.7 if server == 0 else 2.1))
    found = best_server_rates(made, "emnist_cr", "fedavg")
    assert found[-1.5] == "omitted"
    best = found[-1.0]
    assert not isinstance(best, str) and best.spec.at["server_lr"] == -0.5
    entries = ARTIFACTS["server_rates"].drawn(made).tables[0].entries
    shown = {(e.row, e.column): e.shown for e in entries if e.row == "FedAvg"}
    assert shown == {
        ("FedAvg", "log10 η_l = −1.5"): "omitted",
        ("FedAvg", "log10 η_l = −1"): "−0.5",
    }


def test_a_heat_map_has_its_cells_and_the_share_near_the_best(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    values = iter((0.80, 0.795, 0.70, None))
    for spec in made.heat_map("emnist_cr", "fedavg"):
        value = next(values)
        write(made, spec, value, status="done" if value else "diverged")
    ease, *maps = ARTIFACTS["heatmaps_emnist_cr"].drawn(made).tables
    cells = [(e.row, e.column, e.shown) for e in maps[4].entries]
    first, second = "log10 η_l = −1.5", "log10 η_l = −1"  # the largest server rate on top, as in the figure
    assert cells == [
        ("0", first, "79.5"),
        ("0", second, "diverged"),
        ("−0.5", first, "80.0"),
        ("−0.5", second, "70.0"),
    ]
    assert [m.title.partition(":")[0] for m in maps[1:4:2]] == [
        "EMNIST CR, FedAdam, τ = 1e−3",
        "EMNIST CR, FedAvgM",
    ]
    share = {e.row: e for e in ease.entries if e.column.startswith("share")}
    assert (share["FedAvg"].ours, share["FedAvg"].detail) == (50.0, "(2 of 4)")  # 80 and 79.5 of four


def test_decay_pairs_centralized_with_federated_and_tunes_each(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_cr",))
    for spec, loss, value in zip(made.centralized("adam"), (0.2, 0.1), (0.90, 0.85), strict=True):
        write(made, spec, value, train_loss=loss)
    for spec in made.decayed("fedadam"):
        write(made, spec, 0.862, train_loss=1.0)
    write(made, made.published("emnist_cr", "fedadam"), 0.8575)
    (table,) = ARTIFACTS["decay"].drawn(made).tables
    column = {e.row: e for e in table.entries if e.column == "Adam / FedAdam"}
    assert [column[row].ours for row in column] == pytest.approx([85.0, 85.75, 86.2])
    assert [column[row].ours_bold for row in column] == [False, True, True]  # 85.75 is 0.45 below 86.2
    assert column["Centralized"].detail == "(log10 η_l = −2.5)"


def test_the_test_set_table_takes_the_full_test_set_where_the_scale_has_it(tmp_path: Path) -> None:
    full = replace(TINY, full_test=True)
    made = study(tmp_path, ("so_lr",), scale=full)
    write(made, made.published("so_lr", "fedavg"), 0.3, full_test=0.406)
    made_small = study(tmp_path, ("so_lr",))
    write(made_small, made_small.published("so_lr", "fedavg"), 0.25)
    for one, expected, words in ((made, 40.6, "full test set"), (made_small, 25.0, "not the full test set")):
        (table,) = ARTIFACTS["so_test"].drawn(one).tables
        assert [e.ours for e in table.entries if e.column == "FedAvg"] == [pytest.approx(expected)]
        assert words in table.title


def test_curves_draw_every_method_with_a_run(tmp_path: Path) -> None:
    made = study(tmp_path, ("emnist_ae",))
    write_all(made, ARTIFACTS["curves_emnist_ae"].specs(made), lambda spec: 0.02)
    table, points = ARTIFACTS["curves_emnist_ae"].drawn(made).tables
    assert [e.ours for e in table.entries] == pytest.approx([20.0] * 6)  # MSE x 1000
    assert table.entries[0].text(table.entries[0].ours) == "20.00"
    fedavg = [(e.row, e.ours) for e in points.entries if e.column == "FedAvg"]
    assert fedavg == [("0", 10.0), ("1", 20.0), ("2", 20.0)]


# -- data


def write_images(directory: Path, name: str, labels: list[list[int]]) -> Path:
    """A store of clients with these labels, the same in both splits."""
    key, shape = ("image", (2, 2, 3)) if name.startswith("cifar") else ("pixels", (28, 28))

    def clients() -> list[tuple[str, dict[str, np.ndarray]]]:
        return [
            (f"c{at}", {key: np.zeros((len(own), *shape), np.uint8), "label": np.array(own)})
            for at, own in enumerate(labels)
        ]

    write_store(directory, name, [], {"train": clients(), "test": clients()})
    return directory


def test_the_histogram_counts_different_labels_of_each_client(tmp_path: Path) -> None:
    store = write_images(tmp_path / "cifar100", "cifar100", [[1, 1, 2], [3, 3], [4, 5], [6, 7]])
    made = Study(TINY, tmp_path, find_sources(["cifar100"], str(store)), ("cifar100",))
    summary, histogram = ARTIFACTS["labels"].drawn(made).tables
    assert [(e.row, e.ours) for e in histogram.entries] == [("1", 1), ("2", 3)]
    assert {e.column: e.ours for e in summary.entries}["median"] == 2
    assert {e.word for e in summary.entries} == {"other sample"}


def test_data_is_found_by_name_in_a_directory_or_as_one_store(tmp_path: Path) -> None:
    digits = write_images(tmp_path / "emnist", "emnist", [[0, 9], [3]])
    letters = write_images(tmp_path / "letters", "emnist", [[0, 61], [3]])
    tasks = ["emnist_cr", "so_lr"]
    for data, word in ((tmp_path, "digits"), (digits, "digits"), (letters, "other sample")):
        found = find_sources(tasks, str(data))
        assert (found["emnist"].word, found["stackoverflow"].word) == (word, "synthetic")
    assert find_sources(tasks, "synthetic")["emnist"].directory == "synthetic"
    for data, says in (
        (letters, "holds emnist; the artifact needs stackoverflow"),
        (tmp_path / "no", "holds no imported data"),
    ):
        with pytest.raises(UserError, match=re.escape(says)):
            find_sources(["so_lr"], str(data))
    write_images(tmp_path / "wrong" / "emnist", "cifar10", [[1]])
    with pytest.raises(UserError, match="holds cifar10, not emnist"):
        find_sources(tasks, str(tmp_path / "wrong"))


def test_without_data_what_was_imported_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path))
    write_images(tmp_path / "stores" / "emnist", "emnist", [[0, 9], [3]])
    found = find_sources(["emnist_cr", "cifar10"], None)
    central = Study(SMALL, tmp_path, found, ("emnist_cr",)).centralized("sgd")[0]
    assert dict(central.settings)["data.clients"] == 2  # no more writers than there are
    assert (found["emnist"].word, found["cifar10"].word) == ("digits", "synthetic")


def test_words_say_what_is_not_the_papers_data() -> None:
    assert suffix(["", ""]) == ""
    assert suffix(["synthetic", "synthetic"]) == " (synthetic)"
    assert suffix(["digits", "synthetic"]) == " (partly digits and synthetic)"


def test_a_csv_names_synthetic_numbers_in_the_column_beside_the_papers(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "so_lr" / "fedavg-1"
    entries = (
        Entry("SO LR", "FedAvg", 31.0, 30.0, word="synthetic", run=run),
        Entry("SO NWP", "FedAvg", None, 19.5, word=""),
    )
    lines = list(csv.reader(io.StringIO(to_csv([Table("t", entries)], tmp_path / "performance"))))
    head, first, second = lines
    assert head[4:8] == ["paper", "ours (synthetic)", "data", "difference"]
    assert first[4:8] == ["30", "31", "synthetic", "1"]
    assert first[-1] == "../runs/so_lr/fedavg-1"
    assert second[4:8] == ["19.5", "", "as in the paper", ""]


# -- the whole way


def test_an_estimate_is_rounds_times_cohort_times_steps_over_the_cores() -> None:
    made = study(Path(), scale=SMOKE)
    spec = made.published("so_lr", "fedavg")
    # 3 rounds x 2 clients x 1 step x 0.5 s, 4 evaluations of 100 examples at 1 s per 100, 0.6 s to start
    assert trial_seconds(spec, Speed(0.5, 1.0)) == pytest.approx(0.6 + 3.0 + 4.0)
    assert total_seconds([spec, spec], {"so_lr": Speed(0.5, 1.0)}, 2) == pytest.approx(7.6)
    assert format_duration(90 * 60) == "1.5 h"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real reproduction of two artifacts of one task, and of one without runs."""
    out = tmp_path_factory.mktemp("reproduction") / "tiny"
    request = Request("curves_so_lr", TINY, out, "synthetic", "so_lr", workers=1)
    (made,) = reproduce(request)
    assert (made.runs, made.done + made.diverged) == (9, 9)
    return out


def test_a_real_reproduction_writes_every_file_and_links_to_its_runs(place: Path) -> None:
    directory = place / "curves_so_lr"
    files = {path.name for path in directory.iterdir()}
    assert files == {"figure.svg", "figure.png", "numbers.csv", "table.md", "section.html"}
    assert (directory / "figure.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(directory / "figure.svg")
    lines = list(csv.DictReader((directory / "numbers.csv").read_text().splitlines()))
    numbers = [line for line in lines if line["table"] != "curve"]
    for line in numbers:
        run = directory / line["run"]
        recorded = json.loads((run / "run.json").read_text())
        assert float(line["ours (synthetic)"]) == pytest.approx(100 * recorded["value"])
        assert recorded["algorithm"] == line["column"].lower()
        assert not (run / "checkpoints").exists()  # this scale keeps none
    assert [line["paper"] for line in numbers] == ["67.1", "65.8", "65.9", "36.9", "30", "curve only"]
    rounds = [line["row"] for line in lines if line["table"] == "curve" and line["column"] == "FedAdam"]
    assert rounds == ["0", "1", "2"]
    table = (directory / "table.md").read_text()
    assert "| SO LR | ours (synthetic) |" in table and "- Two rounds." in table
    page = (place / "index.html").read_text()
    assert "http:" not in page.replace("http://www.w3.org", "") and "https:" not in page
    assert "synthetic data" in page and "--tasks so_lr" in page


def test_the_same_command_runs_nothing_again_and_draws_the_same(place: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (place / "runs").rglob("run.json")}
    figure = (place / "curves_so_lr" / "figure.svg").read_bytes()
    reproduce(Request("curves_so_lr", TINY, place, "synthetic", "so_lr", workers=1))
    assert {path: path.stat().st_mtime_ns for path in (place / "runs").rglob("run.json")} == before
    assert (place / "curves_so_lr" / "figure.svg").read_bytes() == figure


def test_another_artifact_shares_the_runs_and_joins_the_page(place: Path) -> None:
    before = sorted((place / "runs").rglob("run.json"))
    (made,) = reproduce(Request("performance", TINY, place, "synthetic", "so_lr", workers=1))
    assert (made.runs, made.done + made.diverged) == (9, 9)
    assert sorted((place / "runs").rglob("run.json")) == before
    page = (place / "index.html").read_text()
    assert page.index('<section id="performance"') < page.index('<section id="curves_so_lr"')


def test_a_damaged_run_is_named_and_left_out(tmp_path: Path) -> None:
    made = study(tmp_path, ("so_lr",))
    specs = ARTIFACTS["so_test"].specs(made)
    write_all(made, specs, lambda spec: 0.5)
    (made.trial(specs[1]).path / "metrics.jsonl").write_text("[]\n")
    told: list[str] = []
    (drawn,) = reproduce(Request("so_test", TINY, tmp_path, "synthetic", "so_lr"), told.append)
    assert drawn.done == 4
    assert "left out" in told[0] and "metrics.jsonl:1: damaged line" in told[0]
    lines = list(csv.DictReader((tmp_path / "so_test" / "numbers.csv").read_text().splitlines()))
    assert [line["state"] for line in lines] == ["", "damaged", "", "", ""]


def test_what_is_there_is_drawn_before_an_error_is_told(tmp_path: Path) -> None:
    one = write_images(tmp_path / "one", "emnist", [[0, 61]])  # fewer clients than the cohort
    with pytest.raises(UserError, match="clients_per_round is 2 and the federation has 1 clients"):
        reproduce(Request("curves_emnist_cr", TINY, tmp_path / "made", str(one), workers=1))
    assert "85.6" in (tmp_path / "made" / "curves_emnist_cr" / "table.md").read_text()
    assert (tmp_path / "made" / "index.html").is_file()


def command(monkeypatch: pytest.MonkeyPatch, place: Path, *words: str) -> int:
    """The command in this process; importing everything in another takes seconds."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["fedopt", "reproduce", *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    return int(leaving.value.code or 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "unknown artifact 'nothing'; allowed: performance, so_test"),
        (["tau", "--scale", "huge"], "unknown scale 'huge'; allowed: paper, small, smoke"),
        (["tau", "--scale", "smoke", "--tasks", "mnist"], "unknown task in --tasks 'mnist'"),
        (["tau", "--scale", "smoke", "--workers", "0"], "workers must be at least 1, got 0"),
        (["tau", "--scale", "smoke", "--variant", "as_rnu"], "unknown variant 'as_rnu'"),
        (["tau", "--scale", "smoke", "--seeds", "3:1"], "--seeds '3:1' has no seeds"),
        (["tau", "--scale", "smoke", "--data", "nowhere"], "--data nowhere holds no imported data"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    assert command(monkeypatch, tmp_path, *words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith(f"error: {says}")
    assert list(tmp_path.iterdir()) == []


def test_the_statistics_are_made_by_the_command_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["datasets", "--scale", "smoke", "--data", "synthetic", "--out", "made", "--json"]
    assert command(monkeypatch, tmp_path, *words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["artifacts"] == [
        {"name": "datasets", "directory": "made/datasets", "runs": 0, "done": 0, "diverged": 0}
    ]
    assert (tmp_path / answer["page"]).is_file()
