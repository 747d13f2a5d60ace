"""The command as a user types it: what it prints, what it leaves on disk, and how it answers mistakes.

`fedopt(...)` calls the command's own `main` in this process, which is quick; where processes are the
point, the real command is started.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import publicfiles
import pytest
import torch
from safetensors.torch import load_file, save_file
from typed import WRITERS, Done, fedopt, files_up_to, refused, run_small, small_command, temporary_files
from written import read_lines

from fedopt import load, version
from fedopt.data.importing.importer import import_dataset
from fedopt.data.synthetic import emnist as synthetic_emnist
from fedopt.models import CharacterCNN


class Finished(NamedTuple):
    path: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of three rounds, with the checkpoints of rounds 2 and 3; not to be changed."""
    path = tmp_path_factory.mktemp("cli") / "run"
    done = run_small(path)
    assert done.code == 0, done.err
    return Finished(path, json.loads(done.out))


@pytest.fixture
def copy(finished: Finished, tmp_path: Path) -> Path:
    """The same run in a directory that may be damaged."""
    return shutil.copytree(finished.path, tmp_path / "run")


# -- what commands print


def test_version_is_the_packages() -> None:
    assert fedopt("--version") == (0, f"fedopt {version.__version__}\n", "")


def test_tasks_lists_the_papers_settings_and_best_rates() -> None:
    done = fedopt("tasks")
    assert (done.code, done.err) == (0, "")
    for word in ("emnist_cr", "emnist_ae", "1,500", "3,000", "-1.5 -2.5 -4", "-3:0.5:0.5", "85.6"):
        assert word in done.out
    assert "SCAFFOLD" in done.out  # whose rates are FedAvg's, and it says so


def test_algorithms_lists_names_and_options() -> None:
    done = fedopt("algorithms")
    assert (done.code, done.err) == (0, "")
    for word in (
        *("fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "scaffold"),
        *("fedopt", "fedprox", "adaalter", "lookahead", "centralized"),
        *("server.tau", "server.momentum", "client.option", "client.mu", "amsgrad", "adabound"),
    ):
        assert word in done.out


def test_show_config_prints_the_configuration_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fedopt(
        *small_command("run", "--algorithm", "fedyogi", "--seed", "7", "--show-config", server__tau=0.01)
    )
    assert (done.code, done.err) == (0, "")
    config = tomllib.loads(done.out)
    assert (config["task"], config["algorithm"], config["seed"]) == ("emnist_cr", "fedyogi", 7)
    assert (config["server"]["tau"], config["data"]["clients"]) == (0.01, WRITERS)
    assert list(tmp_path.iterdir()) == []


def test_the_real_command_prints_one_json_object_and_progress_elsewhere(tmp_path: Path) -> None:
    """With a worker process, started as users start it; the result is that of one process."""
    out = tmp_path / "run"
    words = [
        str(word) for word in small_command("run", "--json", "--out", out, "--rounds", "3", "--seed", "1")
    ]
    words[words.index("serial")] = "processes"
    command = [sys.executable, "-W", "error", "-m", "fedopt", *words, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    summary = json.loads(done.stdout)  # nothing else is on stdout
    assert done.stdout.count("\n") == 1
    required = "task algorithm rounds seed train_loss metric value params x_sha256 seconds".split()
    assert set(required) <= set(summary)
    expected = {"task": "emnist_cr", "algorithm": "fedavg", "rounds": 3, "seed": 1, "metric": "accuracy"}
    assert {key: summary[key] for key in expected} == expected
    assert summary["params"] == 1_206_590
    losses = [line["loss"] for line in read_lines(out, "train")]
    values = [line["accuracy"] for line in read_lines(out, "test") if line["round"] > 0]
    assert summary["train_loss"] == pytest.approx(sum(losses) / 3)
    assert summary["value"] == pytest.approx(sum(values) / 3)
    assert re.fullmatch("[0-9a-f]{64}", summary["x_sha256"])
    assert "round 3/3" in done.stderr and "loss" in done.stderr

    serial = run_small(tmp_path / "serial", "--seed", "1")
    assert json.loads(serial.out)["x_sha256"] == summary["x_sha256"]
    assert temporary_files(tmp_path) == []


def test_without_json_the_result_is_a_few_lines(finished: Finished) -> None:
    done = fedopt(*small_command("run", "--out", finished.path, "--rounds", "3"))
    assert done.code == 0
    for word in (
        "emnist_cr fedavg, 3 rounds, seed 0",
        "accuracy",
        "train loss",
        "1,206,590",
        str(finished.path),
    ):
        assert word in done.out


@pytest.mark.parametrize("command", ["report", "eval", "export"])
def test_a_name_that_no_system_takes_ends_in_one_line(command: str, tmp_path: Path) -> None:
    done = fedopt(command, tmp_path / ("x" * 300))
    assert done.code in (1, 2)
    refused(done, "x" * 300, code=done.code)


def test_a_run_directory_explains_itself(finished: Finished) -> None:
    names = {entry.name for entry in finished.path.iterdir() if not entry.name.startswith(".")}
    assert names == {"config.toml", "metrics.jsonl", "run.json", "checkpoints"}
    info = json.loads((finished.path / "run.json").read_text())
    assert info["status"] == "done"
    assert info["command"].startswith("fedopt run emnist_cr --executor serial --set data.clients=4")
    assert info["fedopt"] == version.__version__
    assert info["x_sha256"] == finished.summary["x_sha256"]
    assert [line["round"] for line in read_lines(finished.path, "train")] == [1, 2, 3]
    assert [line["round"] for line in read_lines(finished.path, "test")] == [0, 1, 2, 3]
    assert temporary_files(finished.path) == []


def test_without_out_the_same_command_finds_its_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = small_command("run", "--json", "--rounds", "1")
    first, again, other = fedopt(*words), fedopt(*words), fedopt(*words, "--seed", "1")
    runs = [Path(json.loads(done.out)["run"]) for done in (first, again, other)]
    assert runs[0] == runs[1] != runs[2]
    assert re.fullmatch(r"runs/emnist_cr/fedavg-[0-9a-f]{6}", str(runs[0]))
    assert "finished" in again.err


# -- resuming


def test_a_finished_run_says_so_and_is_left_as_it_is(copy: Path, finished: Finished) -> None:
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    done = run_small(copy)
    assert done.code == 0
    assert done.err == f"{copy} is finished: 3 rounds\n"
    assert {**json.loads(done.out), "run": "", "seconds": 0} == {**finished.summary, "run": "", "seconds": 0}
    assert {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()} == before


def test_more_rounds_extend_a_finished_run(copy: Path, tmp_path: Path) -> None:
    extended, whole = run_small(copy, rounds=5), run_small(tmp_path / "whole", rounds=5)
    assert "continuing after round 3" in extended.err
    assert json.loads(extended.out)["x_sha256"] == json.loads(whole.out)["x_sha256"]
    assert [line["round"] for line in read_lines(copy, "train")] == [1, 2, 3, 4, 5]
    assert json.loads((copy / "run.json").read_text())["rounds"] == 5
    assert tomllib.loads((copy / "config.toml").read_text())["rounds"] == 5
    assert temporary_files(copy) == []


def test_fewer_rounds_than_are_done_change_nothing(copy: Path) -> None:
    before = (copy / "metrics.jsonl").read_bytes()
    done = run_small(copy, rounds=2)
    assert (done.code, json.loads(done.out)["rounds"]) == (0, 3)
    assert (copy / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("change", [{"client__lr": 0.2}, {"seed": 3}, {"server__schedule": "staircase"}])
def test_another_configuration_is_refused_and_the_run_stays_as_it_is(
    copy: Path, change: dict[str, Any]
) -> None:
    before = (copy / "run.json").read_bytes()
    key = next(iter(change)).replace("__", ".")
    refused(run_small(copy, **change), str(copy), "another configuration", key, "--out")
    assert (copy / "run.json").read_bytes() == before


def test_a_start_that_was_killed_before_its_config_was_written_starts_again(
    copy: Path, finished: Finished
) -> None:
    """config.toml is written last, so a directory with less is the trace of a killed start."""
    (copy / "config.toml").unlink()
    (copy / "metrics.jsonl").write_bytes(b"")
    shutil.rmtree(copy / "checkpoints")
    done = run_small(copy)
    assert done.code == 0, done.err
    assert json.loads(done.out)["x_sha256"] == finished.summary["x_sha256"]


# -- compare


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    out = tmp_path_factory.mktemp("compare")
    words = (
        "--algorithms",
        "fedavg, fedyogi",
        "--rounds",
        "2",
        "--set",
        "fedyogi:server.lr=0.05",
        "--out",
        out,
    )
    return out, fedopt(*small_command("compare", *words))


def test_compare_prints_one_table_and_names_the_report(compared: tuple[Path, Done]) -> None:
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
    assert "fedyogi round 2/2" in done.err


def test_compare_keeps_a_directory_for_each_algorithm(compared: tuple[Path, Done]) -> None:
    out, _ = compared
    configs = {
        name: tomllib.loads((out / name / "config.toml").read_text()) for name in ("fedavg", "fedyogi")
    }
    assert {name: config["algorithm"] for name, config in configs.items()} == {n: n for n in configs}
    assert configs["fedyogi"]["server"]["lr"] == 0.05  # set for it alone
    assert configs["fedavg"]["server"]["lr"] == 1.0  # the paper's
    assert temporary_files(out) == []


def test_the_report_is_one_file_that_loads_nothing(compared: tuple[Path, Done]) -> None:
    page = (compared[0] / "report.html").read_text()
    assert "fedyogi" in page and "synthetic" in page
    assert not re.search(
        r"""<(?:script|img|iframe|link)[^>]*\s(?:src|href)\s*=\s*["']?(?:https?:)?//""", page
    )
    assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", page)


def test_compare_again_finds_its_runs_finished(compared: tuple[Path, Done]) -> None:
    out, _ = compared
    words = (
        "--algorithms",
        "fedavg,fedyogi",
        "--rounds",
        "2",
        "--set",
        "fedyogi:server.lr=0.05",
        "--out",
        out,
    )
    done = fedopt(*small_command("compare", "--json", *words))
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
    refused(compare("--algorithms", " , "), "--algorithms")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("algorithms", ["fedavg,scaffold", "fedavg"])
def test_one_that_diverges_fails_the_command_but_not_the_others(algorithms: str, tmp_path: Path) -> None:
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


# -- several seeds


class Seeded(NamedTuple):
    path: Path
    done: Done


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Seeded:
    """One algorithm with the seeds 1 and 2; not to be changed."""
    path = tmp_path_factory.mktemp("seeds") / "out"
    return Seeded(path, run_small(path, "--seeds", "1:3", rounds=2))


def test_several_seeds_are_the_single_runs_of_these_seeds(seeded: Seeded, tmp_path: Path) -> None:
    assert seeded.done.code == 0, seeded.done.err
    assert sorted(entry.name for entry in seeded.path.iterdir()) == ["seed-1", "seed-2"]
    printed = json.loads(seeded.done.out)
    assert [result["seed"] for result in printed["runs"]] == [1, 2]
    alone = json.loads(run_small(tmp_path / "alone", "--seed", "2", rounds=2).out)
    assert printed["runs"][1]["x_sha256"] == alone["x_sha256"] != printed["runs"][0]["x_sha256"]
    assert "fedavg, seed 2 (2 of 2)" in seeded.done.err


def test_several_seeds_end_in_one_object_with_mean_and_interval(seeded: Seeded) -> None:
    """Two values a and b: half the interval is 12.706 |a - b| / 2, by the t of one degree of freedom."""
    printed = json.loads(seeded.done.out)
    a, b = (result["value"] for result in printed["runs"])
    assert (printed["task"], printed["algorithm"], printed["metric"]) == ("emnist_cr", "fedavg", "accuracy")
    assert (printed["n"], printed["mean"]) == (2, pytest.approx((a + b) / 2))
    assert printed["half"] == pytest.approx(12.7062 * abs(a - b) / 2, rel=1e-4)


def test_a_command_remakes_each_of_several_seeds(seeded: Seeded, tmp_path: Path) -> None:
    words = shlex.split(json.loads((seeded.path / "seed-1/run.json").read_text())["command"])
    assert words[:2] == ["fedopt", "run"] and words[-2:] == ["--out", str(seeded.path / "seed-1")]
    done = fedopt(*words[1:-1], tmp_path / "again", "--executor", "serial", "--json")
    assert json.loads(done.out)["x_sha256"] == json.loads(seeded.done.out)["runs"][0]["x_sha256"]


def test_more_seeds_join_those_that_are_there(seeded: Seeded, tmp_path: Path) -> None:
    out = shutil.copytree(seeded.path, tmp_path / "out")
    words = small_command("run", "--seeds", "2,4", "--rounds", "2", "--out", out)
    done = fedopt(*words)
    assert done.code == 0, done.err
    assert done.err.count("is finished: 2 rounds") == 1
    assert sorted(entry.name for entry in out.iterdir()) == ["seed-1", "seed-2", "seed-4"]
    values = [json.loads((out / name / "run.json").read_text())["value"] for name in ("seed-2", "seed-4")]
    first = done.out.splitlines()[0]
    assert first.startswith(f"accuracy  {50 * sum(values):.1f} % ± ") and "2 seeds, 95 % interval" in first
    assert "emnist_cr, 2 rounds, synthetic data" in done.out and f"runs: {out}" in done.out


def test_without_out_more_seeds_of_the_same_configuration_lie_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seeds in ("0", "1", "0:2"):
        done = fedopt(*small_command("run", "--rounds", "1", "--seeds", seeds))
        assert done.code == 0, done.err
    (out,) = (tmp_path / "runs/emnist_cr").iterdir()
    assert sorted(entry.name for entry in out.iterdir()) == ["seed-0", "seed-1"]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    printed = json.loads(run_small(tmp_path, "--seeds", "3", rounds=1).out)
    assert (printed["half"], printed["n"]) == (None, 1)
    assert printed["mean"] == printed["runs"][0]["value"]


def test_seeds_that_diverge_are_named_and_do_not_end_the_others(tmp_path: Path) -> None:
    done = run_small(tmp_path / "out", "--seeds", "0:2", rounds=2, client__lr=1e38, patience=1)
    assert done.code == 1
    failed = done.err.splitlines()[-1]
    assert failed.startswith("failed: fedavg, seed 0: round 1: ") and "fedavg, seed 1: round 1: " in failed
    printed = json.loads(done.out)
    assert (printed["runs"], printed["mean"], printed["half"], printed["n"]) == ([], None, None, 0)
    for seed in (0, 1):
        found = json.loads((tmp_path / f"out/seed-{seed}/run.json").read_text())
        assert (found["status"], found["rounds_done"]) == ("diverged", 1)


def test_several_seeds_do_not_go_into_the_directory_of_one_nor_one_into_that_of_several(
    copy: Path, seeded: Seeded
) -> None:
    refused(run_small(copy, "--seeds", "0:2"), str(copy), "one seed", "--out")
    refused(run_small(seeded.path), str(seeded.path), "not a run directory", "--out")


def test_a_comparison_of_several_seeds_has_a_directory_for_each(tmp_path: Path) -> None:
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
    assert again.err.count("is finished: 1 rounds") == 4
    rows = [line.split() for line in again.out.splitlines()]
    ends = [row[-1] for row in rows if row and row[0] in ("fedavg", "fedyogi") and "±" in "".join(row)]
    assert ends[:2] == ["2", "2"]  # the table's last column is the number of seeds
    refused(
        fedopt(*small_command("compare", "--algorithms", "fedavg", "--rounds", "1", "--out", tmp_path)),
        str(tmp_path / "fedavg"),
    )
    assert (tmp_path / "report.html").is_file()


# -- report


@pytest.fixture
def several(finished: Finished, seeded: Seeded, tmp_path: Path) -> Path:
    """A directory of runs at different depths, one of them damaged."""
    shutil.copytree(finished.path, tmp_path / "several/plain")
    shutil.copytree(seeded.path, tmp_path / "several/deep/er")
    (tmp_path / "several/deep/er/seed-1/run.json").write_text("{")
    return tmp_path / "several"


def test_a_report_covers_all_runs_below_and_names_the_damaged(several: Path) -> None:
    done = fedopt("report", several, "--title", "Two <runs>")
    assert (done.code, done.out) == (0, f"{several / 'report.html'}\n"), done.err
    (warning,) = done.err.splitlines()
    assert warning.startswith("warning: left out: ") and "deep/er/seed-1/run.json" in warning
    page = (several / "report.html").read_text()
    assert "Two &lt;runs&gt;" in page and "<runs>" not in page
    assert fedopt("report", several).code == 0  # again, and the page itself is no run


def test_a_report_on_several_directories_lies_here_or_where_it_is_asked_for(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    both = (several / "plain", several / "deep/er/seed-2")
    assert fedopt("report", *both) == (0, "report.html\n", "")
    assert fedopt("report", *both, "-o", "new/page.html") == (0, "new/page.html\n", "")
    assert "fedavg on emnist_cr" in Path("new/page.html").read_text()
    assert Path("report.html").is_file()


def test_a_report_that_cannot_be_is_refused(several: Path, tmp_path: Path) -> None:
    refused(fedopt("report", tmp_path / "nothing"), str(tmp_path / "nothing"))
    refused(fedopt("report", several, "-o", several), str(several), "name a file")
    (tmp_path / "file").write_text("mine")
    for page in ("file/page.html", "file/deep/page.html"):
        done = fedopt("report", several, "-o", tmp_path / page)
        refused(done, f"{tmp_path / 'file'} is a file, not a directory", "another path")
    for page in ("/proc/page.html", "/proc/new/page.html"):  # where nobody may write, not even root
        refused(fedopt("report", several, "-o", page), f"cannot write {page}", "another path")
    assert (tmp_path / "file").read_text() == "mine"
    refused(fedopt("report", several / "deep/er/seed-1"), "no run can be read", "run.json")
    info = several / "plain/run.json"
    info.write_text(info.read_text().replace("emnist_cr", "so_lr"))
    refused(
        fedopt("report", several / "plain", several / "deep/er/seed-2"), "emnist_cr (", "so_lr (", "one task"
    )
    assert not (several / "report.html").exists()


# -- eval, export, init


def by_hand(model: torch.nn.Module, split: str) -> tuple[list[int], list[float]]:
    """Examples and accuracy of each writer, computed with nothing but the model and the data."""
    counts, accuracies = [], []
    for writer in range(WRITERS):
        pixels, labels = synthetic_emnist.examples(split, writer).values()
        with torch.no_grad():
            guesses = model(torch.from_numpy(pixels.astype(np.float32) / 255)).argmax(1).numpy()
        counts.append(len(labels))
        accuracies.append(float((guesses == labels).mean()))
    return counts, accuracies


@pytest.mark.parametrize("split", ["test", "train"])
def test_eval_measures_every_example_and_the_spread_over_clients(finished: Finished, split: str) -> None:
    done = fedopt("eval", finished.path, "--split", split, "--executor", "serial", "--json")
    assert (done.code, done.err) == (0, "")
    measured = json.loads(done.out)
    counts, accuracies = by_hand(load(finished.path).model, split)
    assert (measured["clients"], measured["examples"]) == (WRITERS, sum(counts))
    assert (measured["split"], measured["round"], measured["metric"]) == (split, 3, "accuracy")
    assert measured["accuracy"] == pytest.approx(np.average(accuracies, weights=counts))
    percentiles = {str(q): pytest.approx(np.percentile(accuracies, q)) for q in (5, 25, 50, 75, 95)}
    assert measured["percentiles_over_clients"] == percentiles


def test_eval_prints_a_table(finished: Finished) -> None:
    done = fedopt("eval", finished.path, "--executor", "serial")
    assert done.code == 0
    for word in ("test split", "synthetic data", "examples", "50th percentile", "loss"):
        assert word in done.out


@pytest.fixture(scope="module")
def exported(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("export") / "model"
    done = fedopt("export", finished.path, "--to", to)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [str(to / "model.safetensors"), str(to / "MODEL_CARD.md")]
    return to


def test_an_export_loads_into_the_module_under_its_own_names(finished: Finished, exported: Path) -> None:
    weights = load_file(exported / "model.safetensors")
    model = CharacterCNN()
    assert set(weights) == set(model.state_dict())
    model.load_state_dict(weights, strict=True)
    vector = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(vector, load(finished.path).x)
    assert temporary_files(exported) == []


def test_the_model_card_says_what_it_is_and_how_it_was_made(finished: Finished, exported: Path) -> None:
    card = (exported / "MODEL_CARD.md").read_text()
    value = f"{100 * finished.summary['value']:.1f} %"
    for word in ("emnist_cr", "fedavg", "round 3", "synthetic", "1206590", value, "fedopt run emnist_cr"):
        assert word in card
    assert finished.summary["x_sha256"] in card
    assert "| `client.lr` | `0.1` |" in card


def test_a_run_starts_from_exported_weights(finished: Finished, exported: Path, tmp_path: Path) -> None:
    """Its evaluation before the first round is the exported run's last."""
    words = ("--init", exported / "model.safetensors")
    done = run_small(tmp_path / "run", *words, rounds=1)
    assert done.code == 0, done.err
    first, last = read_lines(tmp_path / "run", "test")[0], read_lines(finished.path, "test")[-1]
    assert (first["round"], last["round"]) == (0, 3)
    assert (first["loss"], first["accuracy"]) == (last["loss"], last["accuracy"])
    assert "finished" in run_small(tmp_path / "run", *words, rounds=1).err
    refused(
        run_small(tmp_path / "run", rounds=1), "another configuration", "init"
    )  # the weights are part of it


# -- mistakes in what is asked for

ASKED: dict[str, tuple[list[str], tuple[str, ...]]] = {
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
    "a directory below a device": (["run", "emnist_cr", "--out", "/dev/null/x"], ("/dev/null/x", "--out")),
    "a comparison below a device": (
        ["compare", "emnist_cr", "--algorithms", "fedavg", "--out", "/dev/null/x"],
        ("/dev/null/x", "--out"),
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
    "an evaluation of nothing": (["eval", "no/run"], ("no/run", "fedopt run --out")),
    "an export of nothing": (["export", "no/run"], ("no/run", "fedopt run --out")),
}


@pytest.mark.parametrize("mistake", ASKED)
def test_a_mistake_gets_one_clear_line_and_exit_code_2(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = ASKED[mistake]
    refused(fedopt(*words), *expected)
    assert list(tmp_path.iterdir()) == []  # and nothing was begun


def test_the_traceback_is_there_for_who_asks() -> None:
    with pytest.raises(Exception, match="unknown task"):
        fedopt("--debug", "run", "nothing")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    refused(run_small(file / "run"), str(file), "--out")
    refused(run_small(file), str(file), "--out")
    assert file.read_text() == "mine"


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    refused(run_small(tmp_path), str(tmp_path), "thesis.tex", "--out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_export_to_where_nothing_can_be_written_is_refused(finished: Finished) -> None:
    refused(fedopt("export", finished.path, "--to", "/dev/null/x"), "/dev/null/x", "--to")


def test_an_unknown_split_is_refused(finished: Finished) -> None:
    refused(fedopt("eval", finished.path, "--split", "tset"), "tset", "did you mean 'test'?")


def test_a_split_that_synthetic_data_has_not_is_refused(finished: Finished) -> None:
    refused(fedopt("eval", finished.path, "--split", "heldout"), "synthetic", "'heldout'", "test, train")


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


def test_the_name_of_an_imported_dataset_stands_for_its_directory(
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
def test_eval_measures_a_third_split_as_it_measures_the_test_split(
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
    config = (other / "config.toml").read_text()
    (other / "config.toml").write_text(config.replace(str(stores / "stackoverflow"), str(stores / "swapped")))
    heldout, as_test = measured(tmp_path / "run", "heldout", executor), measured(other, "test")
    assert (heldout["split"], heldout["data"]) == ("heldout", str(stores / "stackoverflow"))
    names = ("clients", "examples", "loss", "recall_at_5", "percentiles_over_clients")
    assert [heldout[name] for name in names] == [as_test[name] for name in names]
    assert heldout["loss"] != measured(tmp_path / "run", "test")["loss"]


def test_a_third_split_that_the_store_has_not_is_refused(imported: Path, tmp_path: Path) -> None:
    run, store = tmp_path / "run", imported / "stores/stackoverflow"
    assert on_questions(run, store).code == 0
    refused(fedopt("eval", run, "--split", "held"), str(store), "'held'", "train, test, heldout")


def weights_of_another_model(file: Path) -> None:
    save_file({"layer.weight": torch.zeros(3)}, file)


def truncated_weights(file: Path) -> None:
    save_file(dict(CharacterCNN().state_dict()), file)
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    "write",
    [weights_of_another_model, truncated_weights, lambda file: file.write_bytes(b"\xff" * 64), Path.mkdir],
    ids=["another model", "truncated", "garbage", "a directory"],
)
def test_damaged_initial_weights_are_refused(write: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    write(file)
    refused(run_small(tmp_path / "run", "--init", file), str(file))
    assert not (tmp_path / "run").exists()


# -- damage to a run directory


def flip_a_bit(file: Path, at: int = -5) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def flip_the_round(file: Path) -> None:
    flip_a_bit(file, file.read_bytes().index(b'"round": 3') + len(b'"round": '))  # 3 becomes 2


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a bit of the state": lambda at: flip_a_bit(at / "state.safetensors"),
    "a bit of the state's header": lambda at: flip_a_bit(at / "state.safetensors", 20),
    "half of the state": lambda at: (at / "state.safetensors").write_bytes(b"\0" * 1000),
    "no state": lambda at: (at / "state.safetensors").unlink(),
    "a bit of the position": lambda at: flip_the_round(at / "position.json"),
    "half of the position": lambda at: (at / "position.json").write_text('{"round": 3,'),
    "a position that is none": lambda at: (at / "position.json").write_text("[]"),
    "no position": lambda at: (at / "position.json").unlink(),
    "an empty directory": lambda at: [file.unlink() for file in at.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    damage: str, copy: Path, finished: Finished
) -> None:
    """The round that is lost with it is run again, and the result is the same."""
    DAMAGE[damage](copy / "checkpoints" / "000003")
    done = run_small(copy)
    assert done.code == 0, done.err
    assert "000003 is damaged" in done.err
    assert "continuing after round 2" in done.err
    assert {**json.loads(done.out), "run": "", "seconds": 0} == {**finished.summary, "run": "", "seconds": 0}
    assert [line["round"] for line in read_lines(copy, "train")] == [1, 2, 3]
    assert temporary_files(copy) == []


@pytest.mark.parametrize("damage", ["a bit of the state", "half of the position"])
def test_damage_to_all_checkpoints_is_refused(damage: str, copy: Path) -> None:
    for checkpoint in (copy / "checkpoints").iterdir():
        DAMAGE[damage](checkpoint)
    metrics = (copy / "metrics.jsonl").read_bytes()
    refused(run_small(copy), str(copy), "damaged", "no other")
    assert (copy / "metrics.jsonl").read_bytes() == metrics  # nothing is thrown away


def test_eval_and_export_refuse_a_damaged_checkpoint(copy: Path) -> None:
    flip_a_bit(copy / "checkpoints" / "000003" / "state.safetensors")
    refused(fedopt("eval", copy, "--executor", "serial"), "000003", "damaged")
    refused(fedopt("export", copy), "000003", "damaged")
    assert not (copy / "export").exists()


def test_what_a_killed_run_wrote_after_its_checkpoint_is_cut_off(copy: Path, finished: Finished) -> None:
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "split": "train", "loss": 1.0}\n{"round": 4, "spl')
    done = run_small(copy, rounds=4)
    assert done.code == 0, done.err
    assert [line["round"] for line in read_lines(copy, "train")] == [1, 2, 3, 4]
    assert read_lines(copy, "train")[-1]["loss"] != 1.0


METRICS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) // 2], "the line of round 2 is missing"),
    "empty": (lambda data: b"", "the line of round 1 is missing"),
    "a line that is none": (lambda data: data.replace(b'{"round": 2', b'X"round": 2', 1), "metrics.jsonl:4"),
    "a line without a round": (lambda data: data.replace(b'"round": 2', b'"rounD": 2', 1), "metrics.jsonl:4"),
    "bytes that are no text": (
        lambda data: data.replace(b"train", b"\xff\xfe\xfd\xfc\xfb", 1),
        "metrics.jsonl:2",
    ),
}


@pytest.mark.parametrize("damage", METRICS)
@pytest.mark.parametrize("rounds", [3, 4])
def test_damaged_metrics_are_refused_with_file_and_line(damage: str, rounds: int, copy: Path) -> None:
    change, word = METRICS[damage]
    file = copy / "metrics.jsonl"
    file.write_bytes(change(file.read_bytes()))
    before = file.read_bytes()
    refused(run_small(copy, rounds=rounds), str(file), word)
    assert file.read_bytes() == before


WORDS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "bytes that are no text": lambda data: b"\xff\xfe" + data,
    "zeros": lambda data: b"\0" * len(data),
    "something else": lambda data: b"[]",
}


@pytest.mark.parametrize("damage", WORDS)
@pytest.mark.parametrize("name", ["config.toml", "run.json"])
def test_damaged_words_are_refused_with_the_file(name: str, damage: str, copy: Path) -> None:
    file = copy / name
    file.write_bytes(WORDS[damage](file.read_bytes()))
    before = file.read_bytes()
    refused(run_small(copy), str(file))
    refused(fedopt("export", copy), str(file))
    assert file.read_bytes() == before


@pytest.mark.parametrize("lost", ["status", "rounds", "metric", "data", "command"])
def test_a_run_json_that_lost_an_entry_is_refused_or_mended(
    lost: str, copy: Path, finished: Finished
) -> None:
    file = copy / "run.json"
    info = json.loads(file.read_text())
    del info[lost]
    file.write_text(json.dumps(info))
    done = run_small(copy)
    if done.code == 0:
        assert json.loads(done.out)["x_sha256"] == finished.summary["x_sha256"]
    else:
        refused(done, str(file), lost)
    card = fedopt("export", copy)
    if card.code:
        refused(card, str(file), lost)


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json"])
def test_a_missing_file_is_named(name: str, copy: Path) -> None:
    (copy / name).unlink()
    refused(run_small(copy), str(copy), name)


# -- the world around


def test_a_disk_without_room_ends_the_run_with_exit_code_1_and_no_half_file(
    tmp_path: Path, finished: Finished
) -> None:
    out = tmp_path / "run"
    with files_up_to(100_000):
        done = run_small(out)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith(f"failed: cannot write {out}")
    assert "Traceback" not in done.err
    assert temporary_files(out) == []
    assert json.loads((out / "run.json").read_text())["status"] == "failed"
    done = run_small(out)  # with room again
    assert json.loads(done.out)["x_sha256"] == finished.summary["x_sha256"]


def test_an_export_without_room_leaves_nothing(finished: Finished, tmp_path: Path) -> None:
    with files_up_to(100_000):
        refused(fedopt("export", finished.path, "--to", tmp_path / "out"), "model.safetensors", code=1)
    assert list((tmp_path / "out").iterdir()) == []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_second_process_is_refused_and_an_interrupted_run_continues(tmp_path: Path) -> None:
    out, rounds = tmp_path / "run", 1000
    words = [
        str(word)
        for word in small_command("run", "--json", "--out", out, "--rounds", str(rounds), eval__every=1000)
    ]
    command = [sys.executable, "-W", "error", "-m", "fedopt", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        wait_for(lambda: (out / "checkpoints" / "000001").is_dir(), first)
        refused(run_small(out, rounds=rounds, eval__every=1000), str(out), "in use", "--out")
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        printed, said = first.communicate(timeout=60)
    assert (first.returncode, printed) == (130, "")
    assert "Traceback" not in said
    assert "same command continues" in said.splitlines()[-1]
    assert temporary_files(out) == []

    done = max(int(checkpoint.name) for checkpoint in (out / "checkpoints").iterdir())
    resumed = run_small(out, rounds=done + 1, eval__every=1000)
    assert f"continuing after round {done}" in resumed.err
    assert json.loads(resumed.out)["rounds"] == done + 1
    whole = run_small(tmp_path / "whole", rounds=done + 1, eval__every=1000)
    assert json.loads(whole.out)["x_sha256"] == json.loads(resumed.out)["x_sha256"]
