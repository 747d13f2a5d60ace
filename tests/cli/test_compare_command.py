"""The command `fedopt compare`."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from typed import Done, fedopt, refused, small_command, temporary_files


def run_compare(out: Path, *more: str) -> Done:
    words = ("--algorithms", "fedavg, fedyogi", "--rounds", "2", "--set", "fedyogi:server.lr=0.05")
    return fedopt(*small_command("compare", *words, "--out", out, *more))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    out = tmp_path_factory.mktemp("compare")
    return out, run_compare(out)


def test_compare_prints_a_table_and_the_report(compared: tuple[Path, Done]) -> None:
    out, done = compared
    assert done.code == 0, done.err
    rows = [line.split()[0] for line in done.out.splitlines() if line.split()]
    assert {"fedavg", "fedyogi"} <= set(rows)
    for word in (
        "emnist_cr, 2 rounds, synthetic data",
        "accuracy",
        "train loss",
        f"report: {out / 'report.html'}",
    ):
        assert word in done.out
    assert "fedyogi (2 of 2) round 2/2" in done.err


def test_papers_rule_ranks_by_the_mean(compared: tuple[Path, Done]) -> None:
    out, done = compared
    ranked = run_compare(out, "--rule", "paper")
    assert (
        "at round 2" in done.out.splitlines()[0] and "as mean of all 2 rounds" in ranked.out.splitlines()[0]
    )
    assert "as mean of all 2 rounds" in (out / "report.html").read_text().replace("\xa0", " ")
    refused(run_compare(out, "--rule", "mean"), "rule", "allowed: last, paper")


def test_compare_writes_a_directory_per_algorithm(compared: tuple[Path, Done]) -> None:
    out, _ = compared
    configs = {
        name: tomllib.loads((out / name / "config.toml").read_text()) for name in ("fedavg", "fedyogi")
    }
    assert {name: config["algorithm"] for name, config in configs.items()} == {n: n for n in configs}
    assert configs["fedyogi"]["server"]["lr"] == 0.05  # set for it alone
    assert configs["fedavg"]["server"]["lr"] == 1.0  # the paper's
    assert temporary_files(out) == []


def test_report_is_self_contained(compared: tuple[Path, Done]) -> None:
    page = (compared[0] / "report.html").read_text()
    assert "fedyogi" in page and "synthetic" in page
    assert not re.search(
        r"""<(?:script|img|iframe|link)[^>]*\s(?:src|href)\s*=\s*["']?(?:https?:)?//""", page
    )
    assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", page)


def test_repeated_compare_finds_its_runs_finished(compared: tuple[Path, Done]) -> None:
    out, _ = compared
    done = run_compare(out, "--json")
    assert done.err.count("is finished: 2 rounds") == 2
    printed = json.loads(done.out)
    assert [run["algorithm"] for run in printed["runs"]] == ["fedavg", "fedyogi"]
    assert printed["report"] == str(out / "report.html")


def test_compare_checks_every_configuration_before_the_first_round(tmp_path: Path) -> None:
    def compare(*words: str) -> Done:
        return fedopt(*small_command("compare", "--rounds", "1", "--out", tmp_path / "out", *words))

    refused(compare("--algorithms", "fedavg,fedyogy"), "fedyogy", "did you mean 'fedyogi'?")
    refused(compare("--algorithms", "fedavg", "--set", "fedyogi:server.lr=1"), "fedyogi", "allowed: fedavg")
    refused(compare("--algorithms", "fedyogi,fedavg", "--set", "server.tau=1"), "server.tau", "fedavg")
    refused(compare("--algorithms", " , "), "algorithms is empty")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("algorithms", ["fedavg,scaffold", "fedavg"])
def test_diverged_run_fails_the_command_but_not_the_other_runs(algorithms: str, tmp_path: Path) -> None:
    words = ("--algorithms", algorithms, "--rounds", "2", "--set", "fedavg:client.lr=1e38", "--out", tmp_path)
    done = fedopt(*small_command("compare", *words, patience=1))
    assert done.code == 1
    assert "Traceback" not in done.err
    assert [line for line in done.err.splitlines() if line.startswith("failed: ") and "fedavg" in line]
    assert (tmp_path / "report.html").is_file()
    states = {
        name: json.loads((tmp_path / name / "run.json").read_text())["status"]
        for name in algorithms.split(",")
    }
    assert (
        states == {"fedavg": "diverged", "scaffold": "done"}
        if "scaffold" in algorithms
        else {"fedavg": "diverged"}
    )
