"""The store: what was written comes back as slices, and nothing damaged is ever visible."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.data.store import Ragged, open_store, ragged, write_store
from fedopt.errors import UserError


def two_clients() -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "a",
        {
            "x": np.array([[1, 2], [3, 4]], np.float32),
            "t": [np.array([5, 6, 7], np.uint16), np.array([], np.uint16)],
        },
    )
    yield "b", {"x": np.array([[9, 9]], np.float32), "t": [np.array([8], np.uint16)]}


def write(directory: Path, **more: Any) -> None:
    write_store(directory, "own", [], {"train": two_clients(), "test": two_clients()}, **more)


def run(code: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """A Python process that imports what the tests here need."""
    head = "import sys, time, numpy as np\nfrom pathlib import Path\nfrom fedopt.data.store import *\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_a_client_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "s", texts={"words.txt": "où\n"}, notes={"seed": 3})
    store = open_store(tmp_path / "s")
    assert (store.name, store.text("words.txt"), store.manifest["notes"]) == ("own", "où\n", {"seed": 3})
    train = store.split("train")
    assert list(train.ids) == ["a", "b"] and train.sizes.tolist() == [2, 1]
    a, b = train.columns(0), train.columns(1)
    assert a["x"].tolist() == [[1, 2], [3, 4]] and a["x"].dtype == np.float32
    assert isinstance(a["t"], Ragged) and isinstance(b["t"], Ragged)
    assert [row.tolist() for row in a["t"].rows()] == [[5, 6, 7], []]
    assert b["t"].values.tolist() == [8] and b["t"].offsets.tolist() == [0, 1]


def test_the_manifest_says_what_is_in_the_store(tmp_path: Path) -> None:
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
def test_clients_may_come_in_any_order_and_are_found_in_that_of_their_ids(
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


def test_ids_are_a_sequence(tmp_path: Path) -> None:
    names = [f"{i:03d}" for i in range(50)]
    write_store(tmp_path / "s", "own", [], {"train": ((n, {"x": np.zeros(1)}) for n in names)})
    ids = open_store(tmp_path / "s").split("train").ids
    assert len(ids) == 50 and ids[-1] == "049" and ids[3:5] == ["003", "004"] and "050" not in ids
    with pytest.raises(ValueError, match="not a client"):
        ids.index("zzz")
    with pytest.raises(IndexError):
        ids[50]


def test_opening_reads_no_column(tmp_path: Path) -> None:
    write(tmp_path / "s")
    column = tmp_path / "s" / "train" / "x.npy"
    column.write_bytes(b"?" * column.stat().st_size)
    split = open_store(tmp_path / "s").split("train")
    assert list(split.ids) == ["a", "b"]
    with pytest.raises(UserError, match=r"x\.npy is damaged.*import the data again"):
        split.columns(0)


def test_fifty_clients_of_many_are_sampled_at_once(tmp_path: Path) -> None:
    n = 40_000
    clients = ((f"{i:06d}", {"x": np.full((1 + i % 3, 2), i, np.float32)}) for i in range(n))
    write_store(tmp_path / "s", "own", [], {"train": clients})
    start = time.perf_counter()
    split = open_store(tmp_path / "s").split("train")
    for at in np.random.default_rng(0).choice(n, 50, replace=False).tolist():
        assert split.columns(at)["x"][0, 0] == int(split.ids[at]) == at
    assert time.perf_counter() - start < 1


def test_a_worker_gets_a_few_bytes_and_opens_its_own_maps(tmp_path: Path) -> None:
    write(tmp_path / "s")
    split = open_store(tmp_path / "s").split("train")
    split.columns(0)
    copy = pickle.loads(pickle.dumps(split))
    assert len(pickle.dumps(split)) < 1000
    assert copy.columns(1)["x"].tolist() == [[9, 9]] and list(pickle.loads(pickle.dumps(split.ids))) == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([("a", {"x": np.zeros((0, 2))})], "client 'a' of split 'train' has no examples"),
        ([("a", {"x": np.zeros(1)}), ("a", {"x": np.zeros(1)})], "client 'a' .* comes twice"),
        ([("", {"x": np.zeros(1)})], "empty id"),
        ([("a", {"x": np.zeros(2), "y": np.zeros(3)})], "different lengths: \\[2, 3\\]"),
        ([("a", {"x": np.zeros(1)}), ("b", {"x": np.zeros(1, np.int64)})], "client 'b'.*column 'x' is int64"),
        ([("a", {"x": np.zeros(1)}), ("b", {"y": np.zeros(1)})], "client 'b'.*has columns \\['y'\\]"),
        ([("a", {"x": np.array([{}])})], "column 'x' is object"),
        ([], "split 'train' has no clients"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    tmp_path: Path, clients: Any, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        write_store(tmp_path / "s", "own", [], {"train": clients})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_import_leaves_the_store_that_was_there(tmp_path: Path) -> None:
    write(tmp_path / "s")
    with pytest.raises(UserError):
        write_store(tmp_path / "s", "own", [], {"train": []})
    assert open_store(tmp_path / "s").split("train").columns(1)["x"].tolist() == [[9, 9]]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def damage_truncate(store: Path) -> None:
    with open(store / "train" / "t.values.npy", "r+b") as file:
        file.truncate(100)


def damage_remove(store: Path) -> None:
    (store / "test" / "offsets.npy").unlink()


def damage_manifest(store: Path) -> None:
    (store / "manifest.json").write_text('{"format": 1, "na')


def damage_other_json(store: Path) -> None:
    (store / "manifest.json").write_text("[]")


def damage_version(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_truncate, r"t\.values\.npy is damaged: 100 bytes where"),
        (damage_remove, r"offsets\.npy is damaged: No such file"),
        (damage_manifest, r"manifest\.json is damaged"),
        (damage_other_json, "no manifest of a store"),
        (damage_version, "store format 2, not 1"),
    ],
)
def test_a_damaged_store_is_refused(tmp_path: Path, damage: Any, words: str) -> None:
    write(tmp_path / "s")
    damage(tmp_path / "s")
    with pytest.raises(UserError, match=words):
        open_store(tmp_path / "s")


def test_a_directory_without_a_store_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no imported data.*fedopt data import"):
        open_store(tmp_path)


def test_pickles_in_a_store_are_not_loaded(tmp_path: Path) -> None:
    write(tmp_path / "s")
    np.save(tmp_path / "s" / "train" / "x.npy", np.array([{"evil": 1}], dtype=object), allow_pickle=True)
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    manifest["files"]["train/x.npy"] = (tmp_path / "s" / "train" / "x.npy").stat().st_size
    (tmp_path / "s" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="damaged"):
        open_store(tmp_path / "s").split("train").columns(0)


SLOW = """
def clients():
    for i in range(1000):
        print(i, flush=True)
        yield f"{i:04d}", {"x": np.full((50, 100), i, np.float32)}
        time.sleep(float(sys.argv[2]))
write_store(Path(sys.argv[1]), "own", [], {"train": clients()})
"""


def test_a_killed_import_leaves_no_store_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    process = run(SLOW, tmp_path / "s", 0.01)
    assert process.stdout is not None
    while process.stdout.readline().strip() != "20":
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = list(tmp_path.iterdir())
    assert left and not (tmp_path / "s").exists()  # the kill landed in the middle of the import
    for directory in [tmp_path / "s", *left]:
        with pytest.raises(UserError):
            open_store(directory)
    write(tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert open_store(tmp_path / "s").split("train").ids[0] == "a"


def test_of_two_imports_at_once_the_second_waits(tmp_path: Path) -> None:
    first = run(SLOW, tmp_path / "s", 0.001)
    assert first.stdout is not None
    first.stdout.readline()
    write(tmp_path / "s")
    assert len(first.communicate()[0].split()) == 999 and first.returncode == 0  # it was not disturbed
    assert list(open_store(tmp_path / "s").split("train").ids) == ["a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_full_disk_ends_with_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
from fedopt.errors import RunError
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
clients = ((f"{i:04d}", {"x": np.zeros((50, 1000), np.float32)}) for i in range(100))
try:
    write_store(Path(sys.argv[1]), "own", [], {"train": clients})
except RunError as error:
    print(error)
"""
    out, error = run(code, tmp_path / "s").communicate()
    assert out.startswith(f"cannot write {tmp_path / 's'}: File too large") and out.count("\n") == 1, error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot write"):
        write(tmp_path / "s")


def test_writing_needs_memory_for_one_client_only(tmp_path: Path) -> None:
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
    out, error = run(code, tmp_path / "s").communicate()
    unit = 1 if sys.platform == "darwin" else 1024
    assert 0 <= int(out or -1) * unit < 40e6, error
