"""Best rates and tau, best server rates and the tau figure, from runs written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reproduction_runs import REAL_EMNIST, cells_of, content_of, make_reader, write_run

from fedopt_paper.artifacts.tuning import BY_TRAINING, BY_VALIDATION, best_server_rates, tau_results

CR = "emnist_cr"


def test_learning_rates_and_tau_have_the_smallest_training_loss(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR, **REAL_EMNIST)
    best = {"client_lr": -2.0, "server_lr": -2.5, "tau": -3.0}
    for run in reader.plan.sweep(CR, "fedadam"):
        value, loss = (0.2, 0.5) if run.point == best else (0.9, 0.6)  # validation must not count
        write_run(reader, run, value, train_loss=loss)
    cells = cells_of("learning_rates", reader)
    assert [cells[f"FedAdam log10 {symbol}"].ours for symbol in ("η_l", "η")] == [-2.0, -2.5]
    assert [cells[f"FedAdam log10 {symbol}"].difference for symbol in ("η_l", "η")] == [-0.5, 0.0]
    taus = cells_of("tau_values", reader)
    adam = taus["FedAdam log10 τ"]
    assert (adam.ours, adam.paper, adam.difference) == (-3.0, -4.0, 1.0)
    assert taus["FedYogi log10 τ"].ours_text == ""


def test_tau_figure_selects_rates_by_validation_and_by_training_loss(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR)
    values, losses = iter((0.5, 0.6, 0.7, 0.8)), iter((1.0, 0.4, 0.9, 0.8))
    for run in reader.plan.sweep(CR, "fedadam"):
        if run.point["tau"] == -3.0:
            write_run(reader, run, next(values), train_loss=next(losses))
        else:
            write_run(reader, run, 0.1, train_loss=9.0)
    by_validation = tau_results(reader, CR, "fedadam", BY_VALIDATION)
    by_training = tau_results(reader, CR, "fedadam", BY_TRAINING)
    assert by_validation[-3.0].value == 0.8
    assert by_training[-3.0].value == 0.6  # the smallest training loss, 0.4
    assert by_validation[-4.0].value == by_training[-4.0].value == 0.1
    cells = {(cell.row, cell.column): cell.ours for cell in content_of("tau", reader).tables[0].cells}
    assert cells["FedAdam, best by validation", "τ = 1e−3"] == pytest.approx(80.0)


def test_client_rates_that_do_not_change_the_initial_loss_are_omitted(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR)
    for run in reader.plan.sweep(CR, "fedavg"):
        is_zero = run.point["server_lr"] == 0  # client rates -1.5 and -1; server rates -0.5 and 0
        if run.point["client_lr"] == -1.5:  # 2.0 -> 1.8 is 10 %, not more
            write_run(reader, run, 0.3 if is_zero else 0.2, losses=(2.0, 1.8))
        else:  # one of the two changed; the other is the best by validation
            write_run(reader, run, 0.5 if is_zero else 0.6, losses=(2.0, 1.7 if is_zero else 2.1))
    best = best_server_rates(reader, CR, "fedavg")
    assert (best[-1.5].value, best[-1.5].state) == (None, "omitted")
    assert best[-1.0].value == 0.6 and best[-1.0].run.point["server_lr"] == -0.5
    cells = content_of("server_rates", reader).tables[0].cells
    assert {cell.column: cell.ours_text for cell in cells if cell.row == "FedAvg"} == {
        "log10 η_l = −1.5": "omitted",
        "log10 η_l = −1": "−0.5",
    }


def test_client_rates_are_judged_by_the_last_validation_loss(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR)
    for run in reader.plan.sweep(CR, "fedavg"):
        path = write_run(reader, run, 0.5, losses=(2.0, 1.9))
        if run.point["client_lr"] == -1.5:  # 1.0 after the first round, 1.9 after the last; the mean is 1.45
            lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
            (first,) = [line for line in lines if (line["round"], line["split"]) == (1, "test")]
            first["loss"] = 1.0
            (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    best = best_server_rates(reader, CR, "fedavg")
    assert {rate: value.state for rate, value in best.items()} == {-1.5: "omitted", -1.0: "omitted"}
