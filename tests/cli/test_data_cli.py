"""`fedopt data` as a user types it: results on stdout, one line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import publicfiles as files
import pytest
from typer.testing import CliRunner, Result

from fedopt.cli.data import app
from fedopt.data.store.describe import histogram
from fedopt.errors import UserError


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def fedopt_data(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_import_then_list_then_info(tmp_path: Path, data: Path) -> None:
    (tmp_path / "in").mkdir()
    done = fedopt_data("import", "emnist", files.hdf5_directory(tmp_path / "in"))
    assert "train 3 clients, 6 examples; test 2 clients, 3 examples" in done.stdout
    assert f"--data {data / 'stores' / 'emnist'}" in done.stdout
    assert "(imported before)" in fedopt_data("import", "emnist", tmp_path / "in").stdout
    listed = fedopt_data("list").stdout
    assert "by writer (imported)" in listed and "by role (not imported)" in listed and str(data) in listed
    shown = fedopt_data("info", "emnist").stdout
    assert "fed_emnist_train.h5" in shown and "pixels uint8 [28, 28], label int64" in shown
    assert "clients by their number of different labels" in shown


def test_info_counts_sizes_and_labels(tmp_path: Path) -> None:
    rows = ["a,0", "a,0", "a,1", "b,5", "c,1", "c,2", "c,3", "c,3", "c,0"]
    (tmp_path / "train.csv").write_text("who,y,x\n" + "".join(f"{row},1\n" for row in rows))
    (tmp_path / "test.csv").write_text("who,y,x\nz,1,1\n")
    arguments = ["--client-column", "who", "--label-column", "y", "--to", tmp_path / "s"]
    fedopt_data("import", "own", tmp_path / "train.csv", *arguments)
    found = json.loads(fedopt_data("info", tmp_path / "s", "--json").stdout)
    train = found["splits"]["train"]
    assert (train["clients"], train["examples"]) == (3, 9)
    assert {p: train["sizes"][p] for p in ("0", "50", "100")} == {"0": 1, "50": 3, "100": 5}
    assert train["labels_per_client"] == {"1": 1, "2": 1, "4": 1}


def test_a_wide_histogram_is_drawn_in_steps() -> None:
    counts = {str(n): 1 for n in range(10, 55)} | {"25": 7}  # 45 numbers: 15 bars of 3, from 9
    lines = histogram(counts, width=9)
    assert len(lines) == 16 and lines[0].split("|")[0].strip() == "9-11"
    assert lines[5].split() == ["24-26", "|", "#########", "9"]  # 24, 25 and 26: 1 + 7 + 1
    assert sum(int(line.split()[-1]) for line in lines) == 51


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "emnst", "."], "unknown dataset 'emnst' .did you mean 'emnist'"),
        (["import", "emnist", "nowhere"], "nowhere does not exist"),
        (["import", "own", "."], "needs --client-column and --label-column"),
        (["import", "emnist", ".", "--label-column", "y"], "for `own` only"),
        (["get", "own"], "unknown dataset 'own'"),
        (["info", "nothing"], "neither an imported dataset nor a directory"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        fedopt_data(*arguments)
    assert "\n" not in str(caught.value)
