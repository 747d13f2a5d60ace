"""What a reproduction selects and says: missing runs, several seeds, variants, centralized training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paperruns import TINY, study, write

from fedopt.data.store import write_store
from fedopt.reproduction import reproduce as reproduction
from fedopt.reproduction import sources
from fedopt.reproduction.artifacts import ARTIFACTS
from fedopt.reproduction.cost import Speed
from fedopt.reproduction.draw_figures import best_server_rates
from fedopt.reproduction.page import index
from fedopt.reproduction.published import Statistics
from fedopt.reproduction.reproduce import Request, reproduce
from fedopt.reproduction.scales import PAPER, SMALL, SMOKE
from fedopt.reproduction.study import Spec, Study

CR = "emnist_cr"
BAD = {"failed": "1 of 4 failed", "damaged": "1 of 4 damaged", "running": "1 of 4 to run"}


def spoil(made: Study, spec: Spec, state: str) -> None:
    path = write(made, spec, None, status="running" if state == "damaged" else state)
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("[]\n" if state == "damaged" else "".join(lines[:3]))


@pytest.mark.parametrize("state", BAD)
def test_a_run_that_is_missing_could_have_won_so_nothing_is_selected(tmp_path: Path, state: str) -> None:
    made = study(tmp_path, (CR,))
    specs = made.sweep(CR, "fedavg")
    for spec, value in zip(specs[:3], (0.80, 0.795, None), strict=True):
        write(made, spec, value, status="diverged" if value is None else "done")
    spoil(made, specs[3], state)
    assert (made.winner(specs).value, made.winner(specs).state) == (None, BAD[state])
    cells = {e.column: e for e in ARTIFACTS["learning_rates"].drawn(made).tables[0].entries}
    assert cells["FedAvg log10 η_l"].shown == BAD[state]
    last = best_server_rates(made, CR, "fedavg")[-1.0]  # the client rate of the last two
    assert last == BAD[state].replace("4", "2")
    ease, *maps = ARTIFACTS["heatmaps_emnist_cr"].drawn(made).tables
    share = {e.row: e for e in ease.entries if e.column.startswith("share")}["FedAvg"]
    assert (share.ours, share.shown) == (None, "3 of 4 trials done")
    shown = {e.shown for e in maps[4].entries}
    assert shown == {"80.0", "79.5", "diverged", "unfinished" if state == "running" else state}


# -- several seeds


def seeded(place: Path, *seeds: int) -> Study:
    return replace(study(place, (CR,)), seeds=seeds)


def test_the_papers_rates_run_once_per_seed_and_sweeps_with_the_first(tmp_path: Path) -> None:
    made = seeded(tmp_path, 3, 5)
    specs = ARTIFACTS["performance"].specs(made)
    assert len(specs) == 5 * 2 + 4
    seeds = {made.trial(spec).config.seed for spec in specs if spec.algorithm != "scaffold"}
    assert seeds == {3, 5}
    assert {made.trial(spec).config.seed for spec in made.sweep(CR, "scaffold")} == {3}
    assert made.published(CR, "fedadam") in made.sweep(CR, "fedadam")


def test_cells_and_curves_show_mean_and_interval_and_what_is_within_noise(tmp_path: Path) -> None:
    made = seeded(tmp_path, 0, 1, 2)
    values = {"fedadam": (0.80, 0.81, 0.82), "fedyogi": (0.79, 0.82, 0.80), "fedavg": (0.50, 0.51, 0.52)}
    for method, own in values.items():
        for spec, value in zip(made.repeats(CR, method), own, strict=True):
            write(made, spec, value)
    write(made, made.repeats(CR, "fedavgm")[0], 0.7)
    write(made, made.repeats(CR, "fedavgm")[1], None, status="diverged")
    drawn = ARTIFACTS["performance"].drawn(made)
    cells = {e.column: e for e in drawn.tables[0].entries}
    # t of two degrees of freedom is 4.3027: 4.3027 x 1 / sqrt(3) = 2.484 points
    assert cells["FedAdam"].shown == "81.0 ± 2.5"
    assert cells["FedAdam"].half == pytest.approx(2.4841, abs=1e-3)
    assert (cells["FedAvgM"].shown, cells["FedAvgM"].detail) == (
        "70.0",
        "(1 of 3 seeds, 1 diverged, 1 to run)",
    )
    # differences 1, -1, 2 points: 0.67 ± 3.8 holds 0; those to FedAvg are 30 each time
    noise = [note for note in drawn.notes if "within noise" in note]
    assert noise == ["EMNIST CR: the difference between FedAdam, the best, and FedYogi is within noise."]
    assert any("seeds 0, 1, 2" in note and "Sweeps" in note for note in drawn.notes)
    points = ARTIFACTS["curves_emnist_cr"].drawn(made).tables[1].entries
    last = next(e for e in points if (e.column, e.row) == ("FedAdam", "2"))
    assert (last.ours, last.half) == (pytest.approx(81.0), pytest.approx(2.4841, abs=1e-3))


def test_seeds_and_variant_reach_the_command_and_the_page(tmp_path: Path) -> None:
    request = Request("datasets", TINY, tmp_path, "synthetic", None, None, "as_printed", (1, 2))
    assert request.command("tau").endswith(f"--variant as_printed --seeds 1,2 --out {tmp_path}")
    reproduce(request)
    page = (tmp_path / "index.html").read_text()
    assert "variant=as_printed" in page and "as printed" in page
    default = index(tmp_path, TINY, "as_run")
    assert "The authors’ server mathematics (<code>variant=as_run</code>)" in default
    assert "sampling, weights and betas as the package’s defaults, see docs/deviations.md" in default


# -- centralized training


def test_centralized_optimizers_are_those_of_the_authors_or_of_the_text(tmp_path: Path) -> None:
    made = study(tmp_path, (CR,))
    printed = replace(made, variant="as_printed")
    for optimizer in ("adam", "yogi"):
        client = made.trial(made.centralized(optimizer)[0]).config.client
        assert (client.bias_correction, client.first_step, client.initial_accumulator) == (True, 1, 0.0)
        client = printed.trial(printed.centralized(optimizer)[0]).config.client
        assert (client.bias_correction, client.initial_accumulator) == (False, pytest.approx(1e-6))
    assert made.trial(made.centralized("adagrad")[0]).config.client.initial_accumulator == 0.0
    assert made.trial(made.centralized("sgdm")[0]).config.client.fold_rate is True
    assert printed.trial(printed.published(CR, "fedadam")).config.variant == "as_printed"


def test_centralized_rates_are_chosen_by_the_last_tenth_of_the_epochs(tmp_path: Path) -> None:
    made = study(tmp_path, (CR,), scale=replace(TINY, epochs=20, width=3))
    # the first is better for 18 epochs, the second in the last two; the third is worse
    losses = ([0.1] * 18 + [0.9] * 2, [0.8] * 20, [2.0] * 20)
    for spec, own, value in zip(made.centralized("sgd"), losses, (0.6, 0.7, 0.8), strict=True):
        path = write(made, spec, value)
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            if line["split"] == "train":
                line["loss"] = own[line["round"] - 1]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    drawn = ARTIFACTS["decay"].drawn(made)
    cell = drawn.tables[0].cell("Centralized", "SGD / FedAvg")
    assert cell is not None and cell.ours == pytest.approx(70.0)
    assert cell.detail == "(log10 η_l = −1)"  # -1.5, -1, -0.5: the middle
    notes = " ".join(drawn.notes)
    assert "prints no grid" in notes and "over the last 2 epochs" in notes and "tau = 1e-3" in notes
    assert "first 10 writers" in notes  # whose test images are another test set


def test_a_centralized_rate_at_the_edge_of_the_grid_is_told(tmp_path: Path) -> None:
    made = study(tmp_path, (CR,), scale=replace(TINY, width=3))
    for spec, loss in zip(made.centralized("sgd"), (0.5, 0.6, 0.7), strict=True):
        write(made, spec, train_loss=loss)
    cell = ARTIFACTS["decay"].drawn(made).tables[0].cell("Centralized", "SGD / FedAvg")
    assert cell is not None and cell.detail.startswith("(log10 η_l = −1.5, at the edge of the grid")


# -- data, plans, words


@pytest.mark.parametrize(("form", "word"), [("official binary", "other sample"), ("TFF HDF5", "")])
def test_images_dealt_by_the_import_are_another_sample_with_the_papers_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, word: str
) -> None:
    monkeypatch.setitem(sources.DATASETS, "cifar100", Statistics(1, 2, 1, 2))  # type: ignore[arg-type]
    images = {"image": np.zeros((2, 2, 2, 3), np.uint8), "label": np.array([1, 2])}
    splits = {"train": [("a", images)], "test": [("a", images)]}
    notes = {"format": form, "options": {"partition": "pachinko", "seed": 3}}
    write_store(tmp_path / "cifar100", "cifar100", [], splits, notes=notes)
    assert sources.find_sources(["cifar100"], str(tmp_path))["cifar100"].word == word


def test_stack_overflow_runs_at_the_papers_rates_are_planned_once() -> None:
    made = study(Path(), scale=PAPER)
    for task in ("so_nwp", "so_lr"):
        part = made.of(task)
        swept = set(ARTIFACTS["learning_rates"].specs(part))
        assert set(ARTIFACTS["so_test"].specs(part)) <= swept
        full = [spec for spec in swept if dict(spec.settings)["eval.final"] == "full"]
        assert len(full) == 5


def test_client_rates_are_judged_by_the_last_validation_loss(tmp_path: Path) -> None:
    made = study(tmp_path, (CR,))
    for spec in made.sweep(CR, "fedavg"):
        path = write(made, spec, 0.5, losses=(2.0, 1.9))
        if spec.at["client_lr"] == -1.5:  # 1.0 after the first round, back near 2.0 after the last
            text = (path / "metrics.jsonl").read_text().splitlines()
            first = json.dumps({"round": 1, "split": "test", "loss": 1.0, "accuracy": 0.5})
            text = [first if json.loads(line) | {"loss": 1.0} == json.loads(first) else line for line in text]
            assert first in text
            (path / "metrics.jsonl").write_text("\n".join(text) + "\n")
    found = best_server_rates(made, CR, "fedavg")
    assert found == {-1.5: "omitted", -1.0: "omitted"}  # the mean over the rounds would be 1.45


def test_scales_say_what_their_fields_reduce() -> None:
    small, smoke, paper = (" ".join(scale.said) for scale in (SMALL, SMOKE, PAPER))
    for words in (
        "100 rounds instead of 1,500 to 4,000",
        "10 clients a round; the paper has 50 for SO NWP.",
        "3 x 3 rates around the paper's best, for SCAFFOLD, for which it prints none, around FedAvg's",
        "decay every 34 rounds instead of 500, which gives the paper's 3 levels",
        "on 1,000 (CIFAR-10), 1,000 (CIFAR-100), 2,000 test examples",
        "first 340 writers",
    ):
        assert words in small
    assert [len({t // SMALL.decay_rounds for t in range(100)}), len({t // 1 for t in range(3)})] == [3, 3]
    assert "a day" not in SMALL.what
    assert "“the last 100 rounds” are its 3" in smoke
    assert "every 50 rounds and every 10 of the last 100; the paper's code does it every round" in paper
    changed = replace(SMALL, decay_rounds=20, writers=7)
    assert "every 20 rounds" in " ".join(changed.said) and "first 7 writers" in " ".join(changed.said)


def test_metrics_are_written_as_the_paper_has_them(tmp_path: Path) -> None:
    made = study(tmp_path, ("so_lr",))
    write(made, made.published("so_lr", "fedavg"), 0.3)
    entry = ARTIFACTS["performance"].drawn(made).tables[0].entries[4]
    assert (entry.unit, entry.shown) == ("recall@5 (× 100)", "30.0")
    assert "Section 5" in ARTIFACTS["heatmaps_so_nwp"].where
    assert ARTIFACTS["heatmaps_so_lr"].where == "Appendix, learning rate robustness"


def test_before_work_at_the_papers_scale_its_length_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "calibrate", lambda tasks: {task: Speed(0.0, 0.0) for task in tasks})
    made = study(tmp_path, ("so_lr",), scale=PAPER)
    specs = ARTIFACTS["so_test"].specs(made)
    told: list[str] = []
    request = Request("so_test", PAPER, tmp_path, "synthetic", "so_lr", workers=1)
    reproduction._tell_length(made, specs, request, told.append)
    # five runs of 0.6 seconds to start and nothing else
    assert told == ["about 3 s on this machine for 5 runs; `--scale small` is shorter"]
    reproduction._tell_length(made, specs, replace(request, scale=SMALL), told.append)
    assert len(told) == 1
