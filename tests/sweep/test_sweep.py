"""`fedopt sweep` with real processes: its table against its run directories, kills, interrupts, bad input.

One small sweep is made once; tests that change something do so in a copy of it.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import small
from typed import fedopt, files_up_to, refused

from fedopt import load
from fedopt.engine.executors.base import Serial
from fedopt.errors import UserError
from fedopt.runs.execute import execute
from fedopt.sweep import growing_executor as elastic
from fedopt.sweep.growing_executor import Elastic

ROUNDS = 4
TINY = {
    "data.clients": 12,
    "clients_per_round": 2,
    "client.steps": 1,
    "client.batch_size": 8,
    "model.vocabulary": 100,  # 50,500 parameters
    "eval.sample": 60,
    "eval.every": 2,
    "eval.last_every": 2,
    "checkpoint.every": 1,
    "patience": 1,
}
T_1 = 12.70620  # Student's t for two seeds, from the table
# 10^38 is the largest rate there is: it diverges at once
SQUARE = "client_lr=0|2, server_lr=-1|1, tau=-2"
GRID = "client_lr=1|2|38, server_lr=0, tau=-2"


def words_of(
    *more: str | Path,
    grid: str | Path = GRID,
    algorithm: str = "fedavg",
    rounds: int = ROUNDS,
    **changes: Any,
) -> list[str]:
    """The words of a sweep; client__steps=2 stands for --set client.steps=2."""
    keys = TINY | {key.replace("__", "."): value for key, value in changes.items()}
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    words = ["sweep", "so_lr", "--algorithm", algorithm, "--grid", grid, "--rounds", rounds, *sets, *more]
    return [str(word) for word in words]


def swept(out: Path, *more: str | Path, **changes: Any) -> dict[str, Any]:
    done = fedopt(*words_of("--out", out, "--json", *more, **changes))
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out)
    return result


def table_of(out: Path) -> list[dict[str, str]]:
    with open(out / "sweep.csv") as file:
        return list(csv.DictReader(file))


def info_of(trial: Path) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((trial / "run.json").read_text())
    return info


def trials_of(out: Path) -> dict[str, Path]:
    """The trials by their point, from the table."""
    return {
        f"{row['algorithm']} {float(row['client_lr']):g}": out / row["directory"].split()[0]
        for row in table_of(out)
    }


def losses_of(trial: Path) -> list[float]:
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["split"] == "train"]


def states_of(out: Path) -> dict[str, tuple[str, Any]]:
    """How each trial ended: its status and the checksum of its model."""
    infos = {path.name: info_of(path) for path in (out / "trials").iterdir()}
    return {name: (info["status"], info.get("x_sha256")) for name, info in infos.items()}


def times_of(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("trials/*/*") if path.is_file()}


def alone(trial: Path, to: Path, *more: str) -> dict[str, Any]:
    """The command that run.json names, run in another directory."""
    words = shlex.split(info_of(trial)["command"])
    assert words[:2] == ["fedopt", "run"] and Path(words[words.index("--out") + 1]) == trial
    words[words.index("--out") + 1] = str(to)
    done = fedopt(*words[1:], "--executor", "serial", "--json", *more)
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out)
    return result


class Made(NamedTuple):
    out: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """FedAvg and FedAdagrad at three rates, one of which diverges; not to be changed."""
    out = tmp_path_factory.mktemp("sweep") / "made"
    return Made(out, swept(out, algorithm="fedavg,fedadagrad"))


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAdagrad at two client rates and two server rates, evaluated after 2 and 4 rounds."""
    out = tmp_path_factory.mktemp("sweep") / "square"
    swept(out, grid=SQUARE, algorithm="fedadagrad")
    return out


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    return shutil.copytree(made.out, tmp_path / "sweep")


# -- what a sweep comes to


def test_the_table_is_what_the_run_directories_say(made: Made) -> None:
    rows = table_of(made.out)
    assert len(rows) == 6 == len(list((made.out / "trials").iterdir()))
    for row in rows:
        trial = made.out / row["directory"]
        info = info_of(trial)
        assert row["status"] == info["status"]
        if row["client_lr"] == "38.0":
            assert (row["status"], row["train_loss"], row["recall_at_5"]) == ("diverged", "", "")
            assert int(row["rounds"]) < ROUNDS  # it stopped early
        else:
            assert (row["status"], row["rounds"]) == ("done", str(ROUNDS))
            assert float(row["train_loss"]) == pytest.approx(fmean(losses_of(trial)), rel=1e-12)
            assert float(row["train_loss"]) == pytest.approx(info["train_loss"], rel=1e-12)
            assert float(row["recall_at_5"]) == pytest.approx(info["value"], rel=1e-12)


def test_the_winner_has_the_smallest_mean_train_loss_and_keeps_its_model(made: Made) -> None:
    for algorithm in ("fedavg", "fedadagrad"):
        part = made.summary["algorithms"][algorithm]
        assert (part["trials"], part["diverged"], part["rounds"]) == (3, 1, ROUNDS)
        rows = [row for row in table_of(made.out) if row["algorithm"] == algorithm and row["train_loss"]]
        smallest = min(rows, key=lambda row: float(row["train_loss"]))
        assert part["best"]["run"] == [str(made.out / smallest["directory"])]
        assert part["best"]["score"] == float(smallest["train_loss"])
        assert part["best"]["point"]["client_lr"] == float(smallest["client_lr"])
        assert (part["best"]["score_half"], part["best"]["score_n"]) == (None, 1)
        for row in rows:
            trial = made.out / row["directory"]
            if row is smallest:
                assert load(trial).round == ROUNDS
            else:
                with pytest.raises(UserError, match="no checkpoint"):
                    load(trial)


def test_a_trial_is_to_the_bit_what_its_command_runs(made: Made, tmp_path: Path) -> None:
    for name in ("fedavg 1", "fedadagrad 2"):
        trial = trials_of(made.out)[name]
        result = alone(trial, tmp_path / name)
        info = info_of(trial)
        assert result["x_sha256"] == info["x_sha256"]
        assert (result["train_loss"], result["value"]) == (info["train_loss"], info["value"])


def test_a_loser_is_run_again_by_its_command_in_its_own_place(copy: Path) -> None:
    losers = [p for p in (copy / "trials").iterdir() if not (p / "checkpoints").is_dir()]
    loser = next(p for p in losers if info_of(p)["status"] == "done")
    before = info_of(loser)["x_sha256"]
    words = shlex.split(info_of(loser)["command"])
    words[words.index("--out") + 1] = str(loser)
    assert fedopt(*words[1:], "--executor", "serial").code == 0
    assert info_of(loser)["x_sha256"] == before and load(loser).round == ROUNDS


def test_a_finished_sweep_runs_nothing_again_and_can_select_by_another_metric(copy: Path) -> None:
    before = times_of(copy)
    by_metric = swept(copy, "--select", "recall_at_5", algorithm="fedavg,fedadagrad")
    assert times_of(copy) == before
    for algorithm, part in by_metric["algorithms"].items():
        values = [
            float(r["recall_at_5"])
            for r in table_of(copy)
            if r["algorithm"] == algorithm and r["recall_at_5"]
        ]
        assert part["best"]["score"] == part["best"]["value"] == max(values)


def mean_of(trial: Path, key: str, rounds: int) -> float:
    """The mean of a measure over the evaluations of the first rounds, the model before training aside."""
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    return fmean(x[key] for x in lines if x["split"] == "test" and 1 <= x["round"] <= rounds)


@pytest.mark.parametrize(
    ("select", "measure", "distance"),
    [
        ("train_loss", "recall_at_5", "1 percentage point"),
        ("loss", "loss", "10 %"),
        ("recall_at_5", "recall_at_5", "1 percentage point"),
    ],
)
@pytest.mark.parametrize("rounds", [2, ROUNDS])
def test_ease_is_of_the_selected_measure_after_the_asked_rounds_in_every_place(
    square: Path, tmp_path: Path, select: str, measure: str, distance: str, rounds: int
) -> None:
    out = shutil.copytree(square, tmp_path / "sweep")
    words = words_of("--out", out, "--select", select, grid=SQUARE, algorithm="fedadagrad", rounds=rounds)
    done = fedopt(*words)
    values = [mean_of(trial, measure, rounds) for trial in (out / "trials").iterdir()]
    if measure == "loss":
        best, near = min(values), [value <= 1.1 * min(values) + 1e-12 for value in values]
    else:
        best, near = max(values), [value >= max(values) - 0.01 - 1e-12 for value in values]
    (row,) = [line for line in done.out.splitlines() if line.startswith(" fedadagrad")]
    assert row.endswith(f" {sum(near) / 4 * 100:.0f} % ")
    assert f"whose {measure.replace('_', ' ')} is within {distance} of its best" in done.out
    found = json.loads(fedopt(*words, "--json").out)["algorithms"]["fedadagrad"]["near_best"]
    assert found == {
        "share": sum(near) / 4,
        "within": sum(near),
        "trials": 4,
        "measure": measure,
        "distance": distance,
    }
    name = measure.replace("_", " ")
    shown = f"{best:.4f}" if measure == "loss" else f"{best * 100:.1f} %"
    for _ in range(2):  # the sweep's own page, and that of `fedopt report`, which has the whole runs
        page = (out / "report.html").read_text().rpartition('id="rates"')[2].partition('id="results"')[0]
        text = re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", page)))
        assert f"Its colour shows the test {name}:" in text and f"best {name} with rates" in text
        assert re.search(rf"fedadagrad {shown} .* {sum(near)} of 4 {sum(near) * 25} %", text), text
        selected = "train loss" if select == "train_loss" else f"best {name}"
        assert f"{selected}, the selection criterion of this sweep" in text
        if rounds < ROUNDS:
            break
        assert fedopt("report", out).code == 0


@pytest.mark.parametrize("search", ["halving", "optuna"])
def test_a_search_is_answered_from_what_is_on_disk(copy: Path, search: str) -> None:
    before = times_of(copy)
    result = swept(copy, "--search", search, *(["--trials", "3"] if search == "optuna" else []))
    assert times_of(copy) == before
    assert result["algorithms"]["fedavg"]["best"]["point"]["client_lr"] in (1.0, 2.0)


def test_fewer_rounds_are_scored_as_such_a_run_would_be(copy: Path) -> None:
    before = times_of(copy)
    part = swept(copy, rounds=3)["algorithms"]["fedavg"]
    best = part["best"]
    assert times_of(copy) == before
    expected = [fmean(losses_of(trials_of(copy)[name])[:3]) for name in ("fedavg 1", "fedavg 2")]
    assert best["score"] == pytest.approx(min(expected), rel=1e-12)
    # evaluated after 2 and 4 rounds, so nobody knows the metric after 3
    assert (best["value"], part["near_best"]["share"], part["near_best"]["within"]) == (None, None, 0)
    refused(
        fedopt(*words_of("--out", copy, "--select", "recall_at_5", rounds=3)),
        "not evaluated after 3",
        "--rounds 4",
    )


def test_more_rounds_extend_trials_and_those_without_checkpoints_begin_anew(
    copy: Path, tmp_path: Path
) -> None:
    swept(copy, "--workers", "1", "--keep", "all", rounds=ROUNDS + 2)
    trials = trials_of(copy)
    assert info_of(trials["fedavg 38"])["status"] == "diverged"
    for name in ("fedavg 1", "fedavg 2"):  # one of them had won and kept its checkpoints
        result = alone(trials[name], tmp_path / name)
        assert result["rounds"] == ROUNDS + 2 == len(losses_of(trials[name]))
        assert result["x_sha256"] == info_of(trials[name])["x_sha256"]
        assert load(trials[name]).round == ROUNDS + 2  # --keep all


def test_an_axis_that_an_algorithm_has_not_is_named(made: Made, copy: Path) -> None:
    (line,) = made.summary["remarks"]
    assert line == "fedavg has no tau, so its grid has the 3 points of client_lr and server_lr"
    done = fedopt(*words_of("--out", copy, algorithm="fedavg,fedadagrad"))
    assert line in done.out.splitlines() and line in done.err.splitlines()
    assert "no tau" not in fedopt(*words_of("--out", copy, algorithm="fedadagrad")).out


def test_several_seeds_are_selected_by_their_mean(tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    done = fedopt(*words_of("--out", out, "--workers", "1", "--seeds", "3:5", grid="client_lr=1|2", rounds=2))
    assert done.code == 0, done.err
    assert "means over 2 seeds" in done.out and "±" in done.out
    rows = table_of(out)
    for row in rows:
        trials = [out / name for name in row["directory"].split()]
        assert [info_of(trial)["seed"] for trial in trials] == [3, 4]
        assert float(row["train_loss"]) == pytest.approx(fmean(info_of(t)["train_loss"] for t in trials))
        for name, key in (("train_loss", "train_loss"), ("recall_at_5", "value")):
            a, b = (info_of(trial)[key] for trial in trials)
            # s / sqrt(2) of two values is half their distance
            assert float(row[f"{name}_half"]) == pytest.approx(T_1 * abs(a - b) / 2, rel=1e-5)
        assert row["seeds"] == "2"
    assert float(rows[0]["train_loss"]) < float(rows[1]["train_loss"])
    best = swept(out, "--seeds", "3:5", grid="client_lr=1|2", rounds=2)["algorithms"]["fedavg"]["best"]
    assert (best["score"], best["score_half"], best["value"], best["value_half"]) == tuple(
        float(rows[0][name]) for name in ("train_loss", "train_loss_half", "recall_at_5", "recall_at_5_half")
    )
    assert best["score_n"] == best["value_n"] == 2
    assert len([p for p in out.rglob("checkpoints") if p.is_dir()]) == 2  # both seeds of the winner


def test_halving_continues_survivors_and_stops_the_others_early(tmp_path: Path) -> None:
    out = tmp_path / "halving"
    grid = "client_lr=0|1|2"
    result = swept(out, "--search", "halving", "--workers", "1", grid=grid, rounds=6)
    rows = table_of(out)
    assert [(row["status"], row["rounds"]) for row in rows] == [
        ("done", "6"),
        ("pruned", "2"),
        ("pruned", "2"),
    ]
    assert result["rounds_run"] == 6 + 2 + 2
    best = out / rows[0]["directory"]
    # the later half of the first two rounds is the second
    assert losses_of(best)[1] == min(losses_of(out / row["directory"])[1] for row in rows)
    assert alone(best, tmp_path / "alone")["x_sha256"] == info_of(best)["x_sha256"]
    pruned = out / rows[1]["directory"]
    again = alone(pruned, tmp_path / "pruned")  # what its command runs begins with the same rounds
    assert again["rounds"] == 6 and losses_of(tmp_path / "pruned")[:2] == losses_of(pruned)
    # as a kill leaves it that comes after a trial's last round and before it has written how it ended
    (pruned / "run.json").write_text(json.dumps(info_of(pruned) | {"status": "running"}))
    swept(out, "--search", "halving", grid=grid, rounds=6)
    assert info_of(pruned)["status"] == "pruned" and table_of(out) == rows


# -- kills and interrupts


@contextmanager
def started(words: list[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """The real command, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedopt", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **how,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def slots_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes for trials of a sweep, which are children that multiprocessing has spawned."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue  # it has gone, or is no process
    return found


def group_of(process: subprocess.Popen[str]) -> list[int]:
    """Who is left in the command's process group, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) == process.pid and state != "Z":
            found.append(int(entry.name))
    return found


def rounds_in(out: Path) -> int:
    return sum(file.read_bytes().count(b'"train"') for file in out.glob("trials/*/metrics.jsonl"))


def test_a_killed_sweep_and_a_killed_slot_change_nothing(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = words_of("--out", out, "--workers", "1", algorithm="fedavg,fedadagrad")
    with started(words) as process:
        wait_for(lambda: rounds_in(out) >= 2)
        process.kill()
        process.wait()
        wait_for(lambda: not group_of(process), seconds=20)  # slots end with it, and leave no lock
    with started(words) as process:
        before = rounds_in(out)
        wait_for(lambda: rounds_in(out) > before)
        (slot,) = slots_of(process)
        os.kill(slot, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    assert states_of(out) == states_of(made.out)
    assert {row["train_loss"] for row in table_of(out)} == {row["train_loss"] for row in table_of(made.out)}


@pytest.mark.parametrize("moment", ["while slots start", "while trials run"])
def test_an_interrupt_leaves_130_one_line_and_no_process(tmp_path: Path, moment: str) -> None:
    out = tmp_path / "interrupted"
    with started(words_of("--out", out, "--workers", "1", grid="client_lr=1|2", rounds=5000)) as process:
        wait_for(lambda: slots_of(process) if moment == "while slots start" else rounds_in(out) > 2)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody gets it
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        assert stderr.splitlines() == [
            "interrupted; the same command continues from the last checkpoint, if any"
        ]
        wait_for(lambda: not group_of(process), seconds=20)
    assert not list(out.rglob("*.tmp"))


def test_a_full_disk_ends_with_one_line_and_the_same_command_goes_on(copy: Path) -> None:
    words = words_of("--out", copy, "--workers", "1", grid="client_lr=1|0.5")
    done_before = states_of(copy)
    with files_up_to(100_000):  # a checkpoint has 202,000 bytes
        done = fedopt(*words)
    refused(done, "trial fedavg client_lr=0.5", "File too large", code=1, after_progress=True)
    after = states_of(copy)
    assert {name: after[name] for name in done_before} == done_before
    assert not list(copy.rglob("*.tmp"))
    assert fedopt(*words).code == 0
    (failed,) = after.keys() - done_before.keys()
    assert states_of(copy)[failed][0] == "done"


# -- bad input


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (words_of(grid="cleint_lr=1"), "did you mean 'client_lr'"),
        (words_of(grid=""), "--grid is empty"),
        (words_of(grid="client_lr=1:0:1"), "no values"),
        (words_of(grid="tau=-2"), "only tau, which fedavg has not"),
        (words_of(grid="tau=-2|-1", algorithm="fedadagrad,fedavgm"), "leave fedavgm out"),
        (words_of(grid="client.lrr=1|2"), "no key 'client.lrr'"),
        (words_of(grid="client.lr=-1|0"), "greater than 0"),
        (words_of(grid="client_lr=1", client__lr=0.1), "exclude each other"),
        (words_of(grid="server.momentum=0.5"), "'server.momentum' is not an option of fedavg"),
        (words_of(algorithm=""), "--algorithm names none"),
        (words_of(algorithm="fedavg,fedavg"), "one twice"),
        (words_of(algorithm="fedagv"), "did you mean 'fedavg'"),
        (words_of("--select", "accuracy"), "metric in --select"),
        (words_of("--search", "halfing"), "did you mean 'halving'"),
        (words_of("--search", "halving", "--seeds", "0:3"), "--search grid"),
        (words_of("--seeds", "3:3"), "no seeds"),
        (words_of("--seeds", "0:2", "--seed", "1"), "exclude each other"),
        (words_of("--seeds", "0:2", seed=1), "exclude each other"),
        (words_of("--keep", "none"), "value of --keep"),
        (words_of("--trials", "3"), "--trials is for --search optuna"),
        (words_of("--search", "optuna", "--trials", "0"), "at least 1"),
        (words_of("--workers", "0"), "workers must be at least 1"),
        (words_of(rounds=0), "rounds"),
        (words_of(clients__per__round=3), "no key"),
        (["sweep", "so_rl", "--algorithm", "fedavg"], "did you mean 'so_lr'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line_before_anything_is_written(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    refused(fedopt(*words, "--out", tmp_path / "out"), expected)
    assert not (tmp_path / "out").exists()


def test_without_optuna_the_search_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with patch.dict(sys.modules, {"optuna": None}):
        done = fedopt(*words_of("--search", "optuna", "--out", tmp_path / "out"))
    refused(done, "pip install 'fedopt[optuna]'")
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_no_sweep_is_left_alone(tmp_path: Path, copy: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    refused(fedopt(*words_of("--out", file)), "is a file")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    refused(fedopt(*words_of("--out", foreign)), "not a sweep", "thesis.tex")
    assert [entry.name for entry in foreign.iterdir()] == ["thesis.tex"]
    plan = json.loads((copy / "sweep.json").read_text())
    (copy / "sweep.json").write_text(json.dumps(plan | {"task": "emnist_cr"}))
    refused(fedopt(*words_of("--out", copy)), "a sweep of emnist_cr, not of so_lr")
    (copy / "sweep.json").write_text("{")
    refused(fedopt(*words_of("--out", copy)), "sweep.json is damaged")


def test_two_sweeps_do_not_share_a_directory_at_once(copy: Path) -> None:
    with open(copy / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(fedopt(*words_of("--out", copy)), str(copy), "in use by another sweep")


@pytest.mark.parametrize(
    ("file", "content"),
    [("run.json", "{"), ("metrics.jsonl", '{"round": 1}\n{"round": 2}\n'), ("config.toml", "a=")],
)
def test_a_damaged_trial_is_named_and_how_to_run_it_again(copy: Path, file: str, content: str) -> None:
    trial = trials_of(copy)["fedavg 1"]
    (trial / file).write_text(content)
    refused(fedopt(*words_of("--out", copy)), f"{trial}/{file}", f"remove {trial} to run this trial again")
    if file == "run.json":
        before = {name: state for name, state in states_of_others(copy, trial).items()}
        shutil.rmtree(trial)
        assert fedopt(*words_of("--out", copy, "--workers", "1")).code == 0
        assert info_of(trial)["status"] == "done"
        assert states_of_others(copy, trial) == before


def states_of_others(out: Path, trial: Path) -> dict[str, str]:
    return {p.name: info_of(p)["status"] for p in (out / "trials").iterdir() if p != trial}


# -- sharing cores


def test_an_executor_that_grows_between_rounds_gives_the_same_model() -> None:
    config = small.resolve(small.SMALL, "scaffold", {**small.SETTINGS, "rounds": 4})
    problem = small.build_problem(small.SMALL, config)
    expected = execute(config, problem, Serial()).x_sha256
    place, used = Elastic(), []

    def on_step(step: Any) -> None:
        if step.position.round == 2:
            place.widen(1)
        used.append(type(place._now).__name__)

    with patch.object(elastic, "STARTING", 0.0):
        try:
            found = execute(config, problem, place, on_step=on_step).x_sha256
        finally:
            place.close()
    assert found == expected
    assert used == ["Serial"] * 3 + ["Processes"] * 2  # rounds 0 to 2, then 3 and 4
