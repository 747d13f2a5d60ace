"""The option --seeds of `fedopt run` and `fedopt compare`."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from typed import SeededRuns, fedopt, refused, run_small, small_command


def test_runs_of_several_seeds_equal_single_runs(seeded_runs: SeededRuns, tmp_path: Path) -> None:
    assert seeded_runs.done.code == 0, seeded_runs.done.err
    assert sorted(entry.name for entry in seeded_runs.path.iterdir()) == ["group.json", "seed-1", "seed-2"]
    printed = json.loads(seeded_runs.done.out)
    assert [result["seed"] for result in printed["runs"]] == [1, 2]
    alone = json.loads(run_small(tmp_path / "alone", "--seed", "2", rounds=2).out)
    assert printed["runs"][1]["x_sha256"] == alone["x_sha256"] != printed["runs"][0]["x_sha256"]
    assert "fedavg, seed 2 (2 of 2)" in seeded_runs.done.err


def test_seeds_json_has_mean_and_interval(seeded_runs: SeededRuns) -> None:
    """Two values a and b: half the interval is 12.706 |a - b| / 2, by the t of one degree of freedom."""
    printed = json.loads(seeded_runs.done.out)
    a, b = (result["value"] for result in printed["runs"])
    assert (printed["task"], printed["algorithm"], printed["metric"]) == ("emnist_cr", "fedavg", "accuracy")
    assert (printed["n"], printed["mean"]) == (2, pytest.approx((a + b) / 2))
    assert printed["half_width"] == pytest.approx(12.7062 * abs(a - b) / 2, rel=1e-4)


def test_recorded_command_reproduces_the_run_of_a_seed(seeded_runs: SeededRuns, tmp_path: Path) -> None:
    words = shlex.split(json.loads((seeded_runs.path / "seed-1/run.json").read_text())["command"])
    assert words[:2] == ["fedopt", "run"] and words[-2:] == ["--out", str(seeded_runs.path / "seed-1")]
    done = fedopt(*words[1:-1], tmp_path / "again", "--executor", "serial", "--json")
    assert json.loads(done.out)["x_sha256"] == json.loads(seeded_runs.done.out)["runs"][0]["x_sha256"]


def test_more_seeds_are_added_to_existing_ones(seeded_runs: SeededRuns, tmp_path: Path) -> None:
    out = shutil.copytree(seeded_runs.path, tmp_path / "out")
    words = small_command("run", "--seeds", "2,4", "--rounds", "2", "--out", out)
    done = fedopt(*words)
    assert done.code == 0, done.err
    assert done.err.count("is finished: 2 rounds") == 1
    assert sorted(entry.name for entry in out.iterdir()) == ["group.json", "seed-1", "seed-2", "seed-4"]
    assert json.loads((out / "group.json").read_text())["seeds"] == [1, 2, 4]
    values = [json.loads((out / name / "run.json").read_text())["last"] for name in ("seed-2", "seed-4")]
    first = done.out.splitlines()[0]
    assert first.startswith(f"fedavg reaches {50 * sum(values):.1f} ± ") and "2 seeds, 95 % interval" in first
    assert "emnist_cr, 2 rounds, synthetic data" in done.out and f"runs: {out}" in done.out


def test_default_directory_of_several_seeds_ignores_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seeds in ("0", "1", "0:2"):
        done = fedopt(*small_command("run", "--rounds", "1", "--seeds", seeds))
        assert done.code == 0, done.err
    (out,) = (tmp_path / "runs/emnist_cr").iterdir()
    assert sorted(entry.name for entry in out.iterdir()) == ["group.json", "seed-0", "seed-1"]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    printed = json.loads(run_small(tmp_path, "--seeds", "3", rounds=1).out)
    assert (printed["half_width"], printed["n"]) == (None, 1)
    assert printed["mean"] == printed["runs"][0]["value"]


def test_diverged_seeds_do_not_stop_the_others(tmp_path: Path) -> None:
    done = run_small(tmp_path / "out", "--seeds", "0:2", rounds=2, client__lr=1e38, patience=1)
    assert done.code == 1
    failed = done.err.splitlines()[-1]
    assert failed.startswith("failed: fedavg, seed 0: round 1: ") and "fedavg, seed 1: round 1: " in failed
    printed = json.loads(done.out)
    assert (printed["runs"], printed["mean"], printed["half_width"], printed["n"]) == ([], None, None, 0)
    for seed in (0, 1):
        found = json.loads((tmp_path / f"out/seed-{seed}/run.json").read_text())
        assert (found["status"], found["rounds_done"]) == ("diverged", 1)


def test_one_run_and_several_seeds_do_not_share_a_directory(run_copy: Path, seeded_runs: SeededRuns) -> None:
    refused(run_small(run_copy, "--seeds", "0:2"), str(run_copy), "one seed", "another directory")
    refused(run_small(seeded_runs.path), str(seeded_runs.path), "not a run directory", "another directory")


def test_compare_with_seeds_writes_a_directory_per_seed(tmp_path: Path) -> None:
    words = ("--algorithms", "fedavg,fedyogi", "--rounds", "1", "--seeds", "0:2", "--out", tmp_path)
    done = fedopt(*small_command("compare", "--json", *words))
    assert done.code == 0, done.err
    runs = [f"{name}/seed-{seed}" for name in ("fedavg", "fedyogi") for seed in (0, 1)]
    printed = json.loads(done.out)
    assert [result["run"] for result in printed["runs"]] == [str(tmp_path / name) for name in runs]
    assert [(g["algorithm"], g["n"]) for g in printed["groups"]] == [("fedavg", 2), ("fedyogi", 2)]
    values = [result["value"] for result in printed["runs"]]
    assert [g["mean"] for g in printed["groups"]] == pytest.approx([sum(values[:2]) / 2, sum(values[2:]) / 2])
    again = fedopt(*small_command("compare", *words))
    assert again.err.count("is finished: 1 round\n") == 4
    rows = [line.split() for line in again.out.splitlines()]
    ends = [row[-1] for row in rows if row and row[0] in ("fedavg", "fedyogi") and row[1] != "reaches"]
    assert ends[:2] == ["2", "2"]  # the table's last column is the number of seeds
    refused(
        fedopt(*small_command("compare", "--algorithms", "fedavg", "--rounds", "1", "--out", tmp_path)),
        str(tmp_path / "fedavg"),
    )
    assert (tmp_path / "report.html").is_file()
