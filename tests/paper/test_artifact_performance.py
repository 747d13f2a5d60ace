"""Performance tables and validation curves from runs written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reproduction_runs import (
    REAL_EMNIST,
    TINY,
    cells_of,
    content_of,
    make_plan,
    make_reader,
    write_run,
    write_runs,
)

from fedopt_paper.artifacts.performance import tuning_note
from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.scales import SMALL

CR = "emnist_cr"


def test_performance_table_shows_values_differences_links_and_divergence(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, **REAL_EMNIST)
    path = write_run(reader, reader.plan.published(CR, "fedadam"), 0.80)
    write_run(reader, reader.plan.published(CR, "fedyogi"), 0.7951)
    write_run(reader, reader.plan.published(CR, "fedavg"), None, status="diverged")
    for index, run in enumerate(reader.plan.sweep(CR, "scaffold")):  # the third has the smallest train loss
        write_run(reader, run, 0.7 + index / 100, train_loss=(3.0, 2.0, 1.0, 1.5)[index])
    cells = cells_of("performance", reader)
    assert cells["FedAdam"].ours == pytest.approx(80.0) and cells["FedAdam"].run == path
    assert cells["FedAdam"].difference == pytest.approx(80.0 - 85.6)
    assert (cells["FedAdam"].ours_bold, cells["FedYogi"].ours_bold) == (True, True)  # 79.51 is 0.49 below
    assert (cells["FedAvg"].ours, cells["FedAvg"].ours_text) == (None, "diverged")
    assert cells["FedAvgM"].ours_text == ""
    assert cells["SCAFFOLD"].ours == pytest.approx(72.0)
    assert cells["SCAFFOLD"].detail == "(log10 η_l = −1, log10 η = −0.5)"
    assert cells["SCAFFOLD"].difference is None


@pytest.mark.parametrize(
    ("tasks", "source"),
    [
        (("cifar10",), "SCAFFOLD uses FedAvg's rates and"),
        (
            ("cifar10", "so_lr"),
            "SCAFFOLD uses the best rates of our own sweep (CIFAR-10: FedAvg's rates) and",
        ),
        (("so_lr",), "SCAFFOLD uses the best rates of our own sweep and"),
    ],
)
def test_note_says_where_the_rates_of_scaffold_come_from(tasks: tuple[str, ...], source: str) -> None:
    assert source in tuning_note(make_plan(tasks, SMALL))


def test_differences_and_bold_are_shown_only_where_they_mean_something(tmp_path: Path) -> None:
    test_of_software = replace(TINY, has_meaning=False)
    for name, options, expected in (
        ("real", REAL_EMNIST, (True, True)),
        ("synthetic", {**REAL_EMNIST, "labels": {}}, (False, True)),
        ("few-rounds", {"labels": {"emnist": ""}}, (False, True)),
        ("smoke", {"scale": test_of_software}, (False, False)),
    ):
        reader = make_reader(tmp_path / name, CR, **options)
        write_run(reader, reader.plan.published(CR, "fedadam"), 0.80)
        for artifact in ("performance", "curves_emnist_cr"):
            cell = cells_of(artifact, reader)["FedAdam"]
            assert (cell.difference is not None, cell.ours_bold) == expected, name
            assert (cell.paper, cell.paper_bold) == (85.6, True)  # as printed
            notes = content_of(artifact, reader).notes
            assert any("not shown" in note for note in notes) is not expected[0]


def test_scales_with_few_rounds_show_the_metric_before_training(tmp_path: Path) -> None:
    """The runs written by hand have 1 % at round 0."""
    small = make_reader(tmp_path / "small", CR, "cifar10")
    path = write_run(small, small.plan.published(CR, "fedyogi"), 0.80)
    content = content_of("performance", small)
    (table,) = content.tables
    cell, missing = table.cell("EMNIST CR", "before training"), table.cell("CIFAR-10", "before training")
    assert cell is not None and cell.ours == pytest.approx(1.0) and not cell.ours_bold
    assert cell.run == path  # to which the number links
    assert len(content.figure.axes[0].get_yticks()) == 6  # the methods
    assert missing is not None and missing.ours is None
    paper = make_reader(tmp_path / "paper", CR, scale=replace(TINY, rounds=None))
    assert "before training" not in cells_of("performance", paper)


def test_curves_of_several_tasks_are_panels_of_one_figure(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "cifar10", "so_lr")
    write_run(reader, reader.plan.published("so_lr", "fedavg"), 0.3)
    content = content_of("curves_panels", reader)
    assert [axis.get_title("left") for axis in content.figure.axes] == [
        "CIFAR-10 (synthetic)",
        "SO LR (synthetic)",
    ]
    assert content.figure.axes[1].lines[0].get_ydata() == pytest.approx([1, 30, 30])
    assert {cell.row for cell in content.tables[1].cells} == {"SO LR, 0", "SO LR, 1", "SO LR, 2"}


def test_recall_is_shown_in_the_papers_unit(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "so_lr")
    write_run(reader, reader.plan.published("so_lr", "fedavg"), 0.3)
    cell = cells_of("performance", reader)["FedAvg"]
    assert (cell.unit, cell.ours_text) == ("recall@5 (× 100)", "30.0")


def test_test_table_uses_the_full_test_set_if_the_scale_has_it(tmp_path: Path) -> None:
    full = make_reader(tmp_path, "so_lr", scale=replace(TINY, full_test=True))
    write_run(full, full.plan.published("so_lr", "fedavg"), 0.3, full_test=0.406)
    sample = make_reader(tmp_path, "so_lr")
    write_run(sample, sample.plan.published("so_lr", "fedavg"), 0.25)
    for reader, ours, title in ((full, 40.6, "full test set"), (sample, 25.0, "not the full test set")):
        (table,) = content_of("so_test", reader).tables
        assert [cell.ours for cell in table.cells if cell.column == "FedAvg"] == [pytest.approx(ours)]
        assert title in table.title


def test_curves_contain_every_method_with_a_run(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, "emnist_ae")
    write_runs(reader, ARTIFACTS["curves_emnist_ae"].runs(reader.plan), lambda run: 0.02)
    table, points = content_of("curves_emnist_ae", reader).tables
    assert [cell.ours for cell in table.cells] == pytest.approx([20.0] * 6)  # MSE x 1000
    assert table.cells[0].ours_text == "20.00"
    fedavg = [(cell.row, cell.ours) for cell in points.cells if cell.column == "FedAvg"]
    assert fedavg == [("0", 10.0), ("1", 20.0), ("2", 20.0)]


def test_several_seeds_show_mean_interval_and_differences_within_noise(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, seeds=(0, 1, 2))
    plan = reader.plan
    values = {"fedadam": (0.80, 0.81, 0.82), "fedyogi": (0.79, 0.82, 0.80), "fedavg": (0.50, 0.51, 0.52)}
    for method, own in values.items():
        for run, value in zip(plan.published_per_seed(CR, method), own, strict=True):
            write_run(reader, run, value)
    write_run(reader, plan.published_per_seed(CR, "fedavgm")[0], 0.7)
    write_run(reader, plan.published_per_seed(CR, "fedavgm")[1], None, status="diverged")
    content = content_of("performance", reader)
    cells = {cell.column: cell for cell in content.tables[0].cells}
    # t with two degrees of freedom is 4.3027: 4.3027 x 1 / sqrt(3) = 2.484 points
    assert cells["FedAdam"].ours_text == "81.0 ± 2.5"
    assert cells["FedAdam"].half_width == pytest.approx(2.4841, abs=1e-3)
    assert cells["FedAvgM"].ours_text == "70.0"
    assert cells["FedAvgM"].detail == "(1 of 3 seeds, 1 diverged, 1 to run)"
    # differences 1, -1, 2 points: 0.67 ± 3.8 contains 0; those to FedAvg are 30 each time
    noise = [note for note in content.notes if "within noise" in note]
    assert noise == ["EMNIST CR: the difference between FedAdam, the best, and FedYogi is within noise."]
    assert any("seeds 0, 1, 2" in note and "Sweeps" in note for note in content.notes)
    points = content_of("curves_emnist_cr", reader).tables[1].cells
    last = next(cell for cell in points if (cell.column, cell.row) == ("FedAdam", "2"))
    assert (last.ours, last.half_width) == (pytest.approx(81.0), pytest.approx(2.4841, abs=1e-3))
