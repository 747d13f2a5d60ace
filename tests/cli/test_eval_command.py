"""The command `fedopt eval`."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import publicfiles
import pytest
import torch
from typed import WRITERS, Done, FinishedRun, fedopt, refused
from written import remove_checksums

from fedopt import load
from fedopt.data.importing.importer import import_dataset
from fedopt.data.synthetic import emnist as synthetic_emnist


def by_hand(model: torch.nn.Module, split: str) -> tuple[list[int], list[float]]:
    """Examples and accuracy of each writer, computed from the model and the data alone."""
    counts, accuracies = [], []
    for writer in range(WRITERS):
        pixels, labels = synthetic_emnist.examples(split, writer).values()
        with torch.no_grad():
            guesses = model(torch.from_numpy(pixels.astype(np.float32) / 255)).argmax(1).numpy()
        counts.append(len(labels))
        accuracies.append(float((guesses == labels).mean()))
    return counts, accuracies


@pytest.mark.parametrize("split", ["test", "train"])
def test_eval_measures_every_example_and_percentiles_over_clients(
    finished_run: FinishedRun, split: str
) -> None:
    done = fedopt("eval", finished_run.path, "--split", split, "--executor", "serial", "--json")
    assert done.code == 0, done.err
    measured = json.loads(done.out)
    counts, accuracies = by_hand(load(finished_run.path).model, split)
    assert (measured["clients"], measured["examples"]) == (WRITERS, sum(counts))
    assert (measured["split"], measured["round"], measured["metric"]) == (split, 3, "accuracy")
    assert measured["accuracy"] == pytest.approx(np.average(accuracies, weights=counts))
    percentiles = {str(q): pytest.approx(np.percentile(accuracies, q)) for q in (5, 25, 50, 75, 95)}
    assert measured["percentiles_over_clients"] == percentiles


def test_eval_prints_a_table(finished_run: FinishedRun) -> None:
    done = fedopt("eval", finished_run.path, "--executor", "serial")
    assert done.code == 0
    text = " ".join(done.out.split())  # long titles are wrapped
    for word in ("test split", "synthetic data", "examples", "median client", "95th percentile", "loss"):
        assert word in text


def test_sample_of_clients_gives_an_estimate_with_an_interval(finished_run: FinishedRun) -> None:
    words = ("eval", finished_run.path, "--split", "train", "--executor", "serial")
    measured = json.loads(fedopt(*words, "--sample", WRITERS - 1, "--json").out)
    everything = json.loads(fedopt(*words, "--json").out)
    assert (measured["clients"], measured["clients_total"]) == (WRITERS - 1, WRITERS)
    assert "clients_total" not in everything and "half_width" not in everything
    assert abs(measured["accuracy"] - everything["accuracy"]) <= measured["half_width"]
    assert json.loads(fedopt(*words, "--sample", WRITERS + 1, "--json").out) == everything
    refused(fedopt(*words, "--sample", 0), "sample", "at least 1")
    assert "estimated" in fedopt(*words, "--sample", 2).out
    assert "clients; no confidence interval" in " ".join(fedopt(*words, "--sample", 1).out.split())


def test_unknown_split_is_refused(finished_run: FinishedRun) -> None:
    refused(fedopt("eval", finished_run.path, "--split", "tset"), "tset", "did you mean 'test'?")


def test_split_that_synthetic_data_lacks_is_refused(finished_run: FinishedRun) -> None:
    refused(fedopt("eval", finished_run.path, "--split", "heldout"), "synthetic", "'heldout'", "test, train")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FEDOPT_DATA with a few questions, in which the heldout user of `swapped` is the test user."""
    home = tmp_path_factory.mktemp("data")
    data = publicfiles.stackoverflow()
    for name in ("stackoverflow", "swapped"):
        (home / "files" / name).mkdir(parents=True)
        publicfiles.write_hdf5(home / "files" / name, "stackoverflow", data)
        publicfiles.write_counts(home / "files" / name)
        import_dataset("stackoverflow", [home / "files" / name], home / "stores" / name)
        data["test"], data["heldout"] = data["heldout"], data["test"]
    return home


def on_questions(out: Path, data: str | Path) -> Done:
    sets = ["--set", "clients_per_round=2", "--set", "client.lr=10", "--rounds", "1", "--json"]
    return fedopt("run", "so_lr", "--executor", "serial", *sets, "--data", data, "--out", out)


def test_name_of_an_imported_dataset_means_its_directory(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(imported))
    by_name = on_questions(tmp_path / "run", "stackoverflow")
    assert by_name.code == 0, by_name.err
    store = imported / "stores/stackoverflow"
    assert json.loads(by_name.out)["data"] == str(store)
    assert tomllib.loads((tmp_path / "run/config.toml").read_text())["data"]["source"] == str(store)
    assert "finished" in on_questions(tmp_path / "run", store).err  # the same run


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_eval_measures_a_third_split_like_the_test_split(
    executor: str, imported: Path, tmp_path: Path
) -> None:
    """What is heldout in one store is the test split of the other, and the vocabularies are the same."""

    def measured(run: Path, split: str, executor: str = "serial") -> dict[str, Any]:
        words = ("--split", split, "--executor", executor, "--workers", "1", "--json")
        done = fedopt("eval", run, *words)
        assert done.code == 0, done.err
        return json.loads(done.out)

    stores = imported / "stores"
    assert on_questions(tmp_path / "run", stores / "stackoverflow").code == 0
    other = shutil.copytree(tmp_path / "run", tmp_path / "other")
    remove_checksums(other)
    config = (other / "config.toml").read_text()
    (other / "config.toml").write_text(config.replace(str(stores / "stackoverflow"), str(stores / "swapped")))
    heldout, as_test = measured(tmp_path / "run", "heldout", executor), measured(other, "test")
    assert (heldout["split"], heldout["data"]) == ("heldout", str(stores / "stackoverflow"))
    names = ("clients", "examples", "loss", "recall_at_5", "percentiles_over_clients")
    assert [heldout[name] for name in names] == [as_test[name] for name in names]
    assert heldout["loss"] != measured(tmp_path / "run", "test")["loss"]


def test_split_that_the_store_lacks_is_refused(imported: Path, tmp_path: Path) -> None:
    run, store = tmp_path / "run", imported / "stores/stackoverflow"
    assert on_questions(run, store).code == 0
    refused(fedopt("eval", run, "--split", "held"), str(store), "'held'", "train, test, heldout")
