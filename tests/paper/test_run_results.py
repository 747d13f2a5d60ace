"""Selection of the best run when runs are missing, failed or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reproduction_runs import cells_of, content_of, make_reader, write_run

from fedopt.reports.summary import TRAIN_LOSS
from fedopt_paper.artifacts.tuning import best_server_rates
from fedopt_paper.plan import PlannedRun
from fedopt_paper.results import RunReader
from fedopt_paper.scales import SMALL

CR = "emnist_cr"
STATES = {"failed": "1 of 4 failed", "damaged": "1 of 4 damaged", "running": "1 of 4 to run"}


def write_incomplete_run(reader: RunReader, run: PlannedRun, state: str) -> None:
    path = write_run(reader, run, None, status="running" if state == "damaged" else state)
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("[]\n" if state == "damaged" else "".join(lines[:3]))


def test_sweep_has_no_best_run_before_all_runs_have_results(tmp_path: Path) -> None:
    reader = make_reader(tmp_path, CR)
    runs = reader.plan.sweep(CR, "fedavg")
    for run in runs[:3]:
        write_run(reader, run, train_loss=1.0)
    assert reader.best(runs)[:4] == (runs[0], None, "1 of 4 to run", None)
    write_run(reader, runs[3], None, status="diverged")
    reader.clear()
    assert reader.best(runs).value == 1.0


def test_short_run_has_the_mean_of_its_last_tenth(tmp_path: Path) -> None:
    """Metric and training loss of 30 rounds: the last three count, not the start of training."""
    reader = make_reader(tmp_path, CR, scale=SMALL)
    run = reader.plan.published(CR, "fedavg")
    metrics = write_run(reader, run) / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        value = {28: 0.6, 29: 0.7, 30: 0.8}.get(line["round"], 0.1)
        line.update({"loss": value} if line["split"] == "train" else {"accuracy": value})
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert reader.value(run, TRAIN_LOSS).value == pytest.approx(0.7)
    assert reader.value(run).value == pytest.approx(0.8)  # evaluated every 10 rounds


@pytest.mark.parametrize("state", STATES)
def test_run_without_result_could_be_the_best_so_none_is_selected(tmp_path: Path, state: str) -> None:
    reader = make_reader(tmp_path, CR)
    runs = reader.plan.sweep(CR, "fedavg")
    for run, value in zip(runs[:3], (0.80, 0.795, None), strict=True):
        write_run(reader, run, value, status="diverged" if value is None else "done")
    write_incomplete_run(reader, runs[3], state)
    best = reader.best(runs)
    assert (best.value, best.state) == (None, STATES[state])
    assert cells_of("learning_rates", reader)["FedAvg log10 η_l"].ours_text == STATES[state]
    last = best_server_rates(reader, CR, "fedavg")[-1.0]  # the client rate of the last two runs
    assert (last.value, last.state) == (None, STATES[state].replace("4", "2"))
    tuning, *maps = content_of("heatmaps_emnist_cr", reader).tables
    share = tuning.cell("FedAvg", "near the best of all, %")
    assert share is not None and (share.ours, share.ours_text) == (None, "3 of 4 trials done")
    shown = {cell.ours_text for cell in maps[4].cells}
    assert shown == {"80.0", "79.5", "diverged", "unfinished" if state == "running" else state}
