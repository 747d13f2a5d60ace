"""Errors of the command line: one line, the right exit code, a traceback on request."""

from __future__ import annotations

from pathlib import Path

import pytest
from typed import fedopt, refused

from fedopt import version


def test_version_is_printed() -> None:
    assert fedopt("--version") == (0, f"fedopt {version.__version__}\n", "")


@pytest.mark.parametrize("command", ["report", "eval", "export"])
def test_invalid_path_is_reported_in_one_line(command: str, tmp_path: Path) -> None:
    done = fedopt(command, tmp_path / ("x" * 300))
    assert done.code in (1, 2)
    refused(done, "x" * 300, code=done.code)


MISTAKES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "an unknown task": (["run", "emnist_crr"], ("emnist_crr", "did you mean 'emnist_cr'?")),
    "an unknown algorithm": (
        ["run", "emnist_cr", "--algorithm", "fedadm"],
        ("fedadm", "did you mean 'fedadam'?", "scaffold"),
    ),
    "an unknown key": (
        ["run", "emnist_cr", "--set", "sever.lr=1"],
        ("'sever.lr'", "did you mean 'server.lr'?"),
    ),
    "a setting without a value": (["run", "emnist_cr", "--set", "client.lr"], ("client.lr", "key=value")),
    "a negative rate": (
        ["run", "emnist_cr", "--set", "client.lr=-0.1"],
        ("client.lr", "greater than 0", "-0.1"),
    ),
    "a rate that is no number": (
        ["run", "emnist_cr", "--set", "server.lr=nan"],
        ("server.lr", "nan"),
    ),
    "a tau that is no number": (
        ["run", "emnist_cr", "--algorithm", "fedyogi", "--set", "server.tau=small"],
        ("server.tau", "small"),
    ),
    "zero rounds": (["run", "emnist_cr", "--rounds", "0"], ("rounds", "got 0")),
    "two mistakes": (
        ["run", "emnist_cr", "--rounds", "0", "--set", "client.lr=0"],
        ("2 problems", "client.lr"),
    ),
    "more clients a round than there are": (
        ["run", "emnist_cr", "--set", "data.clients=5", "--set", "clients_per_round=6"],
        ("clients_per_round is 6", "5 clients", "1 to 5"),
    ),
    "an option of an optimizer that is not selected": (
        ["run", "emnist_cr", "--set", "server.tau=0.1"],
        ("'server.tau'", "fedavg", "would be ignored"),
    ),
    "an option of an algorithm that is not selected": (
        ["run", "emnist_cr", "--algorithm", "fedyogi", "--set", "client.option=I"],
        ("'client.option'", "fedyogi", "would be ignored"),
    ),
    "an unknown executor": (["run", "emnist_cr", "--executor", "threads"], ("threads", "processes, serial")),
    "no workers": (["run", "emnist_cr", "--workers", "0"], ("workers", "at least 1", "0")),
    "data that is not there": (["run", "emnist_cr", "--data", "no/such/place"], ("no/such/place",)),
    "weights that are not there": (["run", "emnist_cr", "--init", "no.safetensors"], ("no.safetensors",)),
    "a directory below a device": (
        ["run", "emnist_cr", "--out", "/dev/null/x"],
        ("/dev/null/x", "another directory"),
    ),
    "a comparison below a device": (
        ["compare", "emnist_cr", "--algorithms", "fedavg", "--out", "/dev/null/x"],
        ("/dev/null/x", "another directory"),
    ),
    "one seed and several": (
        ["run", "emnist_cr", "--seed", "1", "--seeds", "0:5"],
        ("--seed and --seeds exclude each other",),
    ),
    "a setting of the seed and several": (
        ["compare", "emnist_cr", "--algorithms", "fedavg", "--set", "fedavg:seed=1", "--seeds", "0:5"],
        ("--set seed and --seeds exclude each other",),
    ),
    "no seeds": (["run", "emnist_cr", "--seeds", "5:0"], ("--seeds '5:0'", "0:5")),
    "seeds that are no numbers": (
        ["compare", "emnist_cr", "--algorithms", "fedavg", "--seeds", "all"],
        ("--seeds 'all'", "3,5,8"),
    ),
    "a dataset by a wrong name": (
        ["run", "shakespeare", "--data", "shakespeer"],
        ("'shakespeer' is neither", "fedopt data list"),
    ),
    "an evaluation of nothing": (["eval", "no/run"], ("no/run", "fedopt run")),
    "an export of nothing": (["export", "no/run"], ("no/run", "fedopt run")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_invalid_requests_exit_with_2_and_one_line(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = MISTAKES[mistake]
    refused(fedopt(*words), *expected)
    assert list(tmp_path.iterdir()) == []  # and nothing was begun


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(Exception, match="unknown task"):
        fedopt("--debug", "run", "nothing")


def test_command_of_another_package_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fedopt.commands]\nbroken = absent_module:run\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused(fedopt("broken"), "absent_module:run")
