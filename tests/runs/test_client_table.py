"""Client state on disk."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import small
import torch
from run_cases import ROUNDS, interrupted, rows, train
from worker_pool import Pool
from written import read_info, read_lines

from fedopt.engine.sampling import uniform
from fedopt.errors import RunError
from fedopt.runs.client_table import DiskTable


def visited_clients(rounds: int) -> set[int]:
    return {i for t in range(rounds) for i in uniform(0, t, 24, 6)}


def test_only_visited_clients_have_rows_and_old_rows_are_removed(tmp_path: Path):
    train("scaffold", tmp_path / "two")
    train("scaffold", tmp_path / "one", settings={"checkpoint.keep": 1})
    assert len(visited_clients(ROUNDS)) < 24, "some client is not visited_clients"
    assert {client for client, _ in rows(tmp_path / "two")} == visited_clients(ROUNDS)
    last = {i: max(t for t in range(ROUNDS) if i in uniform(0, t, 24, 6)) for i in visited_clients(ROUNDS)}
    assert dict(rows(tmp_path / "one")) == last
    assert len(rows(tmp_path / "one")) == len(last), "one row each"
    # The checkpoint of round 4 needs a second row of clients visited both before and in the fifth round.
    fifth = set(uniform(0, 4, 24, 6))
    assert len(rows(tmp_path / "two")) == len(last) + len(fifth & visited_clients(4))


def test_resumed_run_ignores_rows_written_after_the_checkpoint(tmp_path: Path):
    interrupted("scaffold", tmp_path / "run", 2, after=3)
    late = [p for p in (tmp_path / "run" / "clients").iterdir() if p.stem.endswith("-000002")]
    assert len(late) == 6, "the third round has written its rows, its checkpoint has not been written"
    for path in late:
        path.write_bytes(b"half of a row")
    assert train("scaffold", tmp_path / "run", 2).x_sha256 == train("scaffold", None).x_sha256


def test_table_opened_at_an_earlier_round_has_the_rows_of_that_round(tmp_path: Path):
    table = DiskTable(tmp_path / "rows", ("c_i",), 0)
    for t, clients in enumerate(([1, 2], [2, 3], [2])):
        for client in clients:
            table.write(t, client, (torch.full((3,), 10.0 * t + client),))
    assert table.read(2)[0].tolist() == [22.0] * 3
    earlier = DiskTable(tmp_path / "rows", ("c_i",), 2)
    assert [earlier.read(i) and earlier.read(i)[0][0].item() for i in (0, 1, 2, 3)] == [None, 1.0, 12.0, 13.0]
    assert len(list((tmp_path / "rows").iterdir())) == 4


@pytest.mark.xdist_group("workers")
def test_worker_processes_write_identical_rows(tmp_path: Path, pool: Pool):
    algorithm, settings = "scaffold", {"rounds": ROUNDS}
    result = small.run(pool(2), algorithm, settings, out=tmp_path / "workers")
    serial = small.run(None, algorithm, settings, out=tmp_path / "serial")
    assert result.x_sha256 == serial.x_sha256
    assert rows(tmp_path / "workers") == rows(tmp_path / "serial")
    for path in (tmp_path / "serial" / "clients").iterdir():
        assert (tmp_path / "workers" / "clients" / path.name).read_bytes() == path.read_bytes()


Usage = namedtuple("Usage", "total used free")


def test_run_is_refused_before_round_0_if_rows_do_not_fit_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Visited: 24 (1 - (3/4)^5) = 18.3 clients of 848 bytes, and 12 rows of two checkpoints: 26 kB."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 15_000, 15_000))
    with pytest.raises(RunError, match=r"18 clients needs 26 KB, and .* has 15 KB;.*disk") as caught:
        train("scaffold", tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert (read_lines(tmp_path / "run"), read_info(tmp_path / "run")["status"]) == ([], "failed")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 0, 10**9))
    assert train("scaffold", tmp_path / "run").x_sha256 == train("scaffold", None).x_sha256


def test_existing_rows_are_not_counted_twice_when_a_run_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A disk with enough space for a whole run has enough space for the rest of it."""
    settings = {"rounds": 20, "clients_per_round": 12, "client.steps": 1}
    space = 4 * small.D * (24 + 2 * 12) + 1000  # every client's row, and two running rounds

    def usage(path: Path) -> Usage:
        used = sum(4 * small.D for p in (tmp_path / "run" / "clients").glob("*"))
        return Usage(space, used, space - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    interrupted("scaffold", tmp_path / "run", 1, after=10, settings=settings)
    assert train("scaffold", tmp_path / "run", settings=settings).rounds == 20
