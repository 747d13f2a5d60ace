"""A reproduction on a disk that is small, was killed on, or holds another one."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from paperruns import TINY, study, write, write_all
from rich.console import Console

from fedopt.errors import RunError, UserError
from fedopt.files import lock_directory
from fedopt.reproduction import listing
from fedopt.reproduction.artifacts import ARTIFACTS
from fedopt.reproduction.cost import Speed, trial_bytes
from fedopt.reproduction.disk_check import workers_with_room
from fedopt.reproduction.reproduce import Request, reproduce
from fedopt.reproduction.scales import SCALES, SMOKE
from fedopt.sweep.pool import run_trials
from fedopt.sweep.trials import Trial

Usage = namedtuple("Usage", "total used free")


def disk_with(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, int(free)))


def test_a_hook_is_called_as_each_trial_ends_and_for_those_that_were_over(tmp_path: Path) -> None:
    made = study(tmp_path, ("so_lr",))
    before, *specs = made.sweep("so_lr", "fedavg")[:3]
    write(made, before)
    trials = [made.trial(spec) for spec in (before, *specs)]
    (trials[0].path / "checkpoints").mkdir()
    seen: list[tuple[Trial, int]] = []

    def after(trial: Trial) -> None:
        assert json.loads((trial.path / "run.json").read_text())["status"] == "done"
        seen.append((trial, sum((t.path / "checkpoints").exists() for t in trials)))
        shutil.rmtree(trial.path / "checkpoints")

    run_trials(trials, workers=1, after=after)
    assert [trial for trial, _ in seen] == trials
    assert seen[0][1] == 1 and all(lying <= 2 for _, lying in seen)  # its own, and at most the next one's
    assert not any((trial.path / "checkpoints").exists() for trial in trials)


@pytest.mark.parametrize("keeps", [True, False])
def test_what_a_kill_left_of_finished_trials_is_removed_by_the_same_command(
    tmp_path: Path, keeps: bool
) -> None:
    scale = replace(TINY, keep_checkpoints=keeps)
    made = study(tmp_path, ("so_lr",), scale=scale)
    specs = ARTIFACTS["curves_so_lr"].specs(made)
    write_all(made, specs, lambda spec: 0.5)
    for spec in specs:
        for part in ("checkpoints/000002", "clients"):
            (made.trial(spec).path / part).mkdir(parents=True)
    damaged = made.sweep("so_lr", "scaffold")[3]
    (made.trial(damaged).path / "run.json").write_text("{")
    reproduce(Request("curves_so_lr", scale, tmp_path, "synthetic", "so_lr", workers=1))
    for part in ("checkpoints", "clients"):
        left = {spec for spec in specs if (made.trial(spec).path / part).exists()}
        published = {s for s in specs if s.algorithm != "scaffold"}
        assert left == {damaged} | (published if keeps else set())


def test_a_trial_needs_its_checkpoints_and_a_row_for_each_client_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(tmp_path, ("so_lr",))
    scaffold, adam = (made.sweep("so_lr", name)[0] for name in ("scaffold", "fedadam"))
    d = 10_000 * 500 + 500  # words x tags, and a bias for each tag
    # two rounds of two clients of very many: 4 visited, 4 since the last checkpoint, x and c in it
    one = 4 * d * (4 + 4 + 2)
    assert trial_bytes(made.trial(scaffold).config, d, 342_477) == pytest.approx(one, rel=1e-4)
    assert trial_bytes(made.trial(adam).config, d, 342_477) == 4 * d * 3  # x, m and v
    disk_with(monkeypatch, 2.5 * one)
    assert workers_with_room(made, scaffold) == 2
    disk_with(monkeypatch, 1000)
    assert isinstance(workers_with_room(made, scaffold), RunError)


def test_runs_without_room_are_blank_with_the_reason_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study(tmp_path, ("so_lr",))
    published = [made.published("so_lr", name) for name in ("fedadagrad", "fedadam", "fedavgm", "fedavg")]
    write_all(made, published, lambda spec: 0.5)  # FedYogi is left to run
    disk_with(monkeypatch, 1000)
    told: list[str] = []
    (drawn,) = reproduce(Request("performance", TINY, tmp_path, "synthetic", "so_lr", 1), told.append)
    assert (drawn.runs, drawn.done) == (9, 5)
    assert any("left out: 4 runs of so_lr scaffold" in line and "GB" in line for line in told)
    table = (tmp_path / "performance" / "table.md").read_text()
    assert "| no room on the disk |" in table


@pytest.mark.parametrize(
    ("again", "says"),
    [
        ({"scale": SCALES["small"]}, "holds a reproduction at scale tiny; choose another --out"),
        ({"variant": "as_printed"}, "holds a reproduction with variant as_run; choose another --out"),
    ],
)
def test_a_directory_holds_one_scale_and_one_variant(
    tmp_path: Path, again: dict[str, object], says: str
) -> None:
    request = Request("datasets", TINY, tmp_path, "synthetic", "so_lr")
    reproduce(request)
    page = (tmp_path / "index.html").read_text()
    with pytest.raises(UserError, match=says):
        reproduce(replace(request, **again))  # type: ignore[arg-type]
    assert (tmp_path / "index.html").read_text() == page
    reproduce(request)


def test_the_list_tells_the_disk_of_the_largest_trial() -> None:
    speeds = {task: Speed(1.0, 1.0, parameters=1) for task in ARTIFACTS["performance"].tasks}
    speeds["cifar100"] = Speed(1.0, 1.0, parameters=10**9)
    # smoke: three rounds of two of 500 clients, 500 (1 - 0.996^3) = 5.98 rows; a checkpoint after the last
    # round only, so 6 more; x and c
    largest = listing._largest(SCALES["smoke"], speeds)
    assert (largest["task"], largest["algorithm"]) == ("cifar100", "scaffold")
    assert largest["bytes"] == pytest.approx(4e9 * (5.976032 + 6 + 2))
    cost = {"runs": 0, "seconds": 0.0}
    found = {"artifacts": [], "all": dict.fromkeys(SCALES, cost), "cores": 2}
    text = io.StringIO()
    listing.print_list(
        {**found, "largest_trial": dict.fromkeys(SCALES, largest)}, Console(file=text, width=300)
    )
    assert "Disk of the largest trial: 55.9 GB (SCAFFOLD, CIFAR-100) at smoke" in text.getvalue()


def test_somebody_elses_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(UserError, match="not empty and not a reproduction .*index.html"):
        reproduce(Request("datasets", SMOKE, tmp_path, tasks="so_lr", data="synthetic"))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("index.html", "mine")]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("file", "file is a file, and a reproduction is a directory; choose another --out"),
        ("file/below", "cannot write to .*below: Not a directory; choose another --out"),
        ("/proc/new", "cannot write to /proc/new: No such file or directory; choose another --out"),
    ],
)
def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=says):
        reproduce(Request("datasets", SMOKE, tmp_path / place, tasks="so_lr", data="synthetic"))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "mine")]


def test_two_reproductions_do_not_share_a_directory_at_once(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path, "reproduction")
    with pytest.raises(UserError, match="in use by another reproduction"):
        reproduce(Request("datasets", SMOKE, tmp_path, tasks="so_lr", data="synthetic"))
    os.close(lock)
    assert reproduce(Request("datasets", SMOKE, tmp_path, tasks="so_lr", data="synthetic"))
