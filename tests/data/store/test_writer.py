"""Writing a store: any order of clients, atomic replacement, locks, full disks, bounded memory."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smallstores import run_python, two_clients, write_small_store

from fedopt.data.store import Ragged, open_store, ragged, write_store
from fedopt.errors import DataError, UserError


def test_manifest_describes_the_store(tmp_path: Path) -> None:
    source = [{"file": "x.h5", "sha256": "0" * 64, "bytes": 7}]
    write_store(tmp_path / "s", "own", source, {"train": two_clients()})
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["format"] == 1 and manifest["source"] == source and manifest["fedopt"]
    assert manifest["splits"]["train"] == {
        "clients": 2,
        "examples": 3,
        "columns": {"x": {"dtype": "<f4", "shape": [2]}, "t": {"dtype": "<u2", "ragged": True}},
    }


identifiers = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
rows = st.lists(st.lists(st.integers(0, 65535), max_size=3), min_size=1, max_size=4)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.dictionaries(identifiers, rows, min_size=1, max_size=6))
def test_clients_of_any_order_are_sorted_by_id(
    tmp_path_factory: pytest.TempPathFactory, clients: dict[str, list[list[int]]]
) -> None:
    directory = tmp_path_factory.mktemp("order") / "s"
    arriving = (
        (name, {"n": np.array([len(r) for r in given]), "r": ragged(given, np.uint16)})
        for name, given in clients.items()
    )
    write_store(directory, "own", [], {"train": arriving})
    split = open_store(directory).split("train")
    assert list(split.ids) == sorted(clients, key=lambda name: name.encode())
    for at, name in enumerate(split.ids):
        columns = split.columns(at)
        assert isinstance(columns["r"], Ragged)
        assert [row.tolist() for row in columns["r"].rows()] == clients[name]
        assert columns["n"].tolist() == [len(row) for row in clients[name]]
        assert split.ids.index(name) == at and name in split.ids


@pytest.mark.parametrize(
    ("clients", "client"),
    [
        ([("a", {"x": np.zeros((0, 2))})], "a"),
        ([("a", {"x": np.zeros(1)}), ("a", {"x": np.zeros(1)})], "a"),
        ([("", {"x": np.zeros(1)})], ""),
        ([("a", {"x": np.zeros(2), "y": np.zeros(3)})], "a"),
        ([("a", {"x": np.zeros(1)}), ("b", {"x": np.zeros(1, np.int64)})], "b"),
        ([("a", {"x": np.zeros(1)}), ("b", {"y": np.zeros(1)})], "b"),
        ([("a", {"x": np.array([{}])})], "a"),
        ([], None),
    ],
    ids=["no rows", "twice", "no id", "lengths", "other type", "other columns", "objects", "no clients"],
)
def test_invalid_clients_are_rejected_and_leave_no_files(
    tmp_path: Path, clients: Any, client: str | None
) -> None:
    with pytest.raises(DataError) as caught:
        write_store(tmp_path / "s", "own", [], {"train": clients})
    assert caught.value.client == client
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_the_existing_store(tmp_path: Path) -> None:
    write_small_store(tmp_path / "s")
    with pytest.raises(DataError):
        write_store(tmp_path / "s", "own", [], {"train": []})
    assert open_store(tmp_path / "s").split("train").columns(1)["x"].tolist() == [[9, 9]]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


SLOW = """
def clients():
    for i in range(1000):
        print(i, flush=True)
        yield f"{i:04d}", {"x": np.full((50, 100), i, np.float32)}
        time.sleep(float(sys.argv[2]))
write_store(Path(sys.argv[1]), "own", [], {"train": clients()})
"""


def test_killed_write_leaves_no_store_and_the_next_write_cleans_up(tmp_path: Path) -> None:
    process = run_python(SLOW, tmp_path / "s", 0.01)
    assert process.stdout is not None
    while process.stdout.readline().strip() != "20":
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = list(tmp_path.iterdir())
    assert left and not (tmp_path / "s").exists()  # killed while writing
    for directory in [tmp_path / "s", *left]:
        with pytest.raises(DataError):
            open_store(directory)
    write_small_store(tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert open_store(tmp_path / "s").split("train").ids[0] == "a"


def test_second_of_two_simultaneous_writes_waits(tmp_path: Path) -> None:
    first = run_python(SLOW, tmp_path / "s", 0.001)
    assert first.stdout is not None
    first.stdout.readline()
    write_small_store(tmp_path / "s")
    assert len(first.stdout.read().split()) == 999  # not disturbed by the second
    first.communicate()
    assert first.returncode == 0
    assert list(open_store(tmp_path / "s").split("train").ids) == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_full_disk_is_an_error_and_leaves_no_files(tmp_path: Path) -> None:
    code = """
from fedopt.errors import DiskError
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
clients = ((f"{i:04d}", {"x": np.zeros((50, 1000), np.float32)}) for i in range(100))
try:
    write_store(Path(sys.argv[1]), "own", [], {"train": clients})
except DiskError as error:
    print(error.path)
"""
    out, error = run_python(code, tmp_path / "s").communicate()
    assert out == f"{tmp_path / 's'}\n", error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_without_write_permission_is_a_user_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError):
        write_small_store(tmp_path / "s")


def test_memory_holds_one_client_at_a_time(tmp_path: Path) -> None:
    code = """
import resource
def clients():
    for i in range(200):  # 200 MB in all
        yield f"{i:04d}", {"x": np.full((250, 1000), i, np.float32)}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_store(Path(sys.argv[1]), "own", [], {"train": clients()})
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
split = open_store(Path(sys.argv[1])).split("train")
assert all(split.columns(i)["x"][7, 7] == i for i in (0, 99, 199))
print(after - before)
"""
    out, error = run_python(code, tmp_path / "s").communicate()
    unit = 1 if sys.platform == "darwin" else 1024
    assert 0 <= int(out or -1) * unit < 40e6, error
