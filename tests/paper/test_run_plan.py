"""The runs that artifacts plan at each scale, and the settings of these runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from reproduction_runs import make_plan, make_reader, write_images

from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.data_sources import find_data_sources
from fedopt_paper.plan import RunPlan
from fedopt_paper.published import paper_settings
from fedopt_paper.scales import PAPER, SMALL, SMOKE

OPTIMIZERS = ("fedadagrad", "fedadam", "fedyogi", "fedavgm", "fedavg")
CR = "emnist_cr"


def test_paper_scale_has_the_papers_grids() -> None:
    plan = make_plan(scale=PAPER)
    cr = plan.restrict([CR])
    assert len(plan.sweep(CR, "fedadam")) == 8 * 9 * 5  # client, server, tau
    assert len(plan.sweep(CR, "fedavg")) == len(plan.sweep(CR, "scaffold")) == 8 * 9
    assert len(plan.sweep("so_lr", "fedyogi")) == 9 * 8 * 5
    assert len(plan.heat_map("emnist_ae", "fedadagrad")) == 8 * 7
    assert len(ARTIFACTS["learning_rates"].runs(cr)) == 72 * (3 * 5 + 3)
    assert len(ARTIFACTS["heatmaps_emnist_cr"].runs(cr)) == 72 * 5
    assert len(ARTIFACTS["performance"].runs(cr)) == 5 + 72
    # the same grids with decay, five optimizers x eight rates centralized, five constant runs
    assert len(ARTIFACTS["decay"].runs(cr)) == 72 * (3 * 5 + 2) + 5 * 8 + 5


def test_paper_scale_has_the_papers_settings() -> None:
    reader = make_reader(Path(), scale=PAPER)
    plan = reader.plan
    decay = plan.decay_sweep("fedavg")[0].settings
    assert (decay["client.schedule"], decay["client.decay_rounds"]) == ("staircase", 500)
    central = plan.central_sweep("adam")[0].settings
    assert (central["rounds"], central["client.optimizer"]) == (100, "adam")
    config = reader.trial(plan.published("so_nwp", "fedyogi")).config
    assert (config.rounds, config.clients_per_round, config.variant) == (1500, 50, "as_run")
    assert (config.eval.final, config.eval.sample) == ("full", 10_000)
    assert reader.trial(plan.sweep("so_nwp", "fedyogi")[0]).config.eval.final == "sample"
    assert reader.trial(plan.published(CR, "fedavg")).config.eval.sample == 0  # the whole test set


def test_smoke_scale_shares_runs_between_artifacts() -> None:
    reader = make_reader(Path(), scale=SMOKE)
    plan = reader.plan
    for task in plan.tasks:
        for method in OPTIMIZERS:
            grid = plan.sweep(task, method)
            assert plan.published(task, method) in grid
            assert len(grid) == (8 if method in OPTIMIZERS[:3] else 4)
            assert any(run.point.get("tau", -3.0) == -3.0 for run in grid)
    runs = {run for artifact in ARTIFACTS.values() for run in artifact.runs(plan)}
    # per task 3 x 8 + 2 x 4 + SCAFFOLD's 4; decay adds 5 x 4 and 5 optimizers x 2 rates
    assert len(runs) == 7 * 36 + 20 + 10
    config = reader.trial(plan.published("cifar100", "fedadam")).config
    assert (config.rounds, config.clients_per_round, config.client.steps) == (3, 2, 1)
    assert len({reader.trial(run).path for run in runs}) == len(runs)


def test_small_grids_are_around_the_papers_best_and_inside_its_grid() -> None:
    plan = make_plan(scale=SMALL)
    grid = plan.sweep("so_lr", "fedadagrad")  # the paper's best: client 2, server 1, tau 1e-2
    assert {run.point["client_lr"] for run in grid} == {1.5, 2.0, 2.5}
    assert {run.point["server_lr"] for run in grid} == {0.5, 1.0, 1.5}
    assert {run.point["tau"] for run in grid} == {-3.0, -2.0}
    for task in plan.tasks:
        allowed = paper_settings(task).client_grid
        for method in OPTIMIZERS:
            rates = [run.point["client_lr"] for run in plan.sweep(task, method)]
            assert all(allowed.first <= rate <= allowed.last for rate in rates)


def test_stack_overflow_runs_with_the_papers_rates_are_planned_once() -> None:
    plan = make_plan(scale=PAPER)
    for task in ("so_nwp", "so_lr"):
        part = plan.restrict([task])
        sweeps = set(ARTIFACTS["learning_rates"].runs(part))
        assert set(ARTIFACTS["so_test"].runs(part)) <= sweeps
        assert len([run for run in sweeps if run.settings["eval.final"] == "full"]) == 5


def test_published_runs_use_all_seeds_and_sweeps_the_first(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, seeds=(3, 5))
    runs = ARTIFACTS["performance"].runs(reader.plan)
    assert len(runs) == 5 * 2 + 4
    seeds = {reader.trial(run).config.seed for run in runs if run.algorithm != "scaffold"}
    assert seeds == {3, 5}
    assert {reader.trial(run).config.seed for run in reader.plan.sweep(CR, "scaffold")} == {3}
    assert reader.plan.published(CR, "fedadam") in reader.plan.sweep(CR, "fedadam")


def test_centralized_optimizers_follow_the_variant(tmp_path: Path) -> None:
    as_run = make_reader(tmp_path, CR)
    as_printed = make_reader(tmp_path, CR, variant="as_printed")
    for optimizer in ("adam", "yogi"):
        client = as_run.trial(as_run.plan.central_sweep(optimizer)[0]).config.client
        assert (client.bias_correction, client.first_step, client.initial_accumulator) == (True, 1, 0.0)
        client = as_printed.trial(as_printed.plan.central_sweep(optimizer)[0]).config.client
        assert (client.bias_correction, client.initial_accumulator) == (False, pytest.approx(1e-6))
    assert as_run.trial(as_run.plan.central_sweep("adagrad")[0]).config.client.initial_accumulator == 0.0
    assert as_run.trial(as_run.plan.central_sweep("sgdm")[0]).config.client.fold_rate is True
    assert as_printed.trial(as_printed.plan.published(CR, "fedadam")).config.variant == "as_printed"


def test_centralized_training_uses_at_most_the_available_writers(tmp_path: Path) -> None:
    store = write_images(tmp_path / "emnist", "emnist", [[0, 9], [3]])
    plan = RunPlan(SMALL, find_data_sources([CR], str(store)), (CR,))
    assert plan.central_sweep("sgd")[0].settings["data.clients"] == 2
