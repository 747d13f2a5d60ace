"""The `fedopt data` commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import publicfiles as files
import pytest
from smallstores import remove_checksums, write_small_store
from typer.testing import CliRunner, Result

from fedopt.cli.data import app
from fedopt.errors import DataError, RunError, UnknownName, UserError

COLUMNS = ["--client-column", "who", "--label-column", "y"]


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
    fedopt_data("import", "own", tmp_path / "train.csv", *COLUMNS, "--to", tmp_path / "s")
    found = json.loads(fedopt_data("info", tmp_path / "s", "--json").stdout)
    train = found["splits"]["train"]
    assert (train["clients"], train["examples"]) == (3, 9)
    assert {p: train["sizes"][p] for p in ("0", "50", "100")} == {"0": 1, "50": 3, "100": 5}
    assert train["labels_per_client"] == {"1": 1, "2": 1, "4": 1}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["import", "emnst", "."], UnknownName),
        (["import", "emnist", "nowhere"], DataError),
        (["import", "own", "."], UserError),
        (
            ["import", "own", ".", "--client-column", "c", "--label-column", "y", "--test-share", "2"],
            UserError,
        ),
        (["import", "emnist", ".", "--label-column", "y"], UserError),
        (["get", "own"], UnknownName),
        (["info", "nothing"], DataError),
    ],
)
def test_mistake_is_one_line(arguments: list[str], error: type[UserError]) -> None:
    with pytest.raises(error) as caught:
        fedopt_data(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["get", "import"])
def test_get_and_import_share_their_options(command: str) -> None:
    text = fedopt_data(command, "--help").stdout
    for option in ("--to", "--seed", "--train-clients", "--test-clients", "--digits", "--replace"):
        assert option in text


def test_options_reach_the_import(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files.write_cifar(tmp_path / "in", 10, per_file=4)
    options = ["--train-clients", "5", "--test-clients", "2", "--seed", "9"]
    fedopt_data("import", "cifar10", tmp_path / "in", "--to", tmp_path / "s", *options)
    found = json.loads(fedopt_data("info", tmp_path / "s", "--json").stdout)
    assert (found["splits"]["train"]["clients"], found["splits"]["test"]["clients"]) == (5, 2)
    assert found["notes"]["options"]["seed"] == 9


def test_table_options_reach_the_import(tmp_path: Path) -> None:
    rows = [f"u{number % 5},{number},{number},{number % 3}" for number in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,z,y", *rows]) + "\n")
    options = ["--features", "x", "--test-fraction", "0.5"]
    fedopt_data("import", "own", tmp_path / "t.csv", *COLUMNS, "--to", tmp_path / "s", *options)
    found = json.loads(fedopt_data("info", tmp_path / "s", "--json").stdout)
    assert [found["splits"][name]["examples"] for name in ("train", "test")] == [10, 10]
    assert found["notes"]["features"] == ["x"]


@pytest.mark.parametrize("clients", ["0.5", "0", "2.5"])
def test_number_of_test_clients_of_cifar_is_whole(tmp_path: Path, clients: str) -> None:
    assert fedopt_data("import", "cifar10", tmp_path, "--test-clients", clients).exit_code == 2


def test_test_clients_of_a_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        fedopt_data("import", "own", tmp_path, *COLUMNS, "--test-clients", "3")


def test_control_characters_of_a_manifest_are_not_printed(tmp_path: Path, data: Path) -> None:
    (tmp_path / "in").mkdir()
    fedopt_data("import", "emnist", files.hdf5_directory(tmp_path / "in"))
    store = data / "stores" / "emnist"
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["notes"]["title\x1b]0;x\x07"] = "\x1b[2Jcleared\r\nsecond line"
    manifest["source"][0]["file"] = "a\x1b[31m.h5"
    manifest["fedopt"] = "1\u202e"
    remove_checksums(store, **manifest)
    shown = fedopt_data("info", "emnist").stdout
    assert not {c for c in shown if not c.isprintable()} - {"\n"}
    assert "\\x1b[2Jcleared\\r\\nsecond line" in shown and "a\\x1b[31m.h5" in shown


def test_differences_from_the_published_dataset_are_shown(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    difference = "train has 6 examples; published: 671,585"
    for _ in range(2):
        assert difference in fedopt_data("import", "emnist", files.hdf5_directory(tmp_path / "in")).stderr
    assert difference in fedopt_data("info", "emnist").stdout
    assert difference in json.loads(fedopt_data("info", "emnist", "--json").stdout)["differences"]


@pytest.mark.parametrize("factor", ["0", "-1", "nan"])
def test_limit_factor_that_is_not_positive_is_rejected(tmp_path: Path, factor: str) -> None:
    with pytest.raises(UserError, match="--limit-factor must be positive"):
        fedopt_data("import", "emnist", tmp_path, "--limit-factor", factor)


def test_verify_reads_all_files(tmp_path: Path) -> None:
    """Per split: ids (2 files), offsets, x, and t (2 files)."""
    write_small_store(tmp_path / "s")
    assert fedopt_data("info", tmp_path / "s", "--verify").stdout == "verified: 12 files\n"
    assert json.loads(fedopt_data("info", tmp_path / "s", "--verify", "--json").stdout) == {"verified": 12}
    damaged = tmp_path / "s" / "test" / "x.npy"
    time = damaged.stat().st_mtime_ns
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    os.utime(damaged, ns=(time, time))
    assert fedopt_data("info", tmp_path / "s", "--json").exit_code == 0  # size and time are unchanged
    with pytest.raises(RunError, match="test/x.npy") as caught:
        fedopt_data("info", tmp_path / "s", "--verify")
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    (tmp_path / "s" / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="manifest.json"):
        fedopt_data("info", tmp_path / "s", "--verify")


def test_store_without_checksums_is_shown_as_unchecked(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s")
    assert "unchecked" not in fedopt_data("info", tmp_path / "s").stdout
    remove_checksums(tmp_path / "s")
    assert "unchecked" in fedopt_data("info", tmp_path / "s").stdout
    with pytest.raises(RunError, match="unchecked"):
        fedopt_data("info", tmp_path / "s", "--verify")
