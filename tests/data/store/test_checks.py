"""The files of a store are compared with the SHA-256 in its manifest, once per machine and change."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
from smallstores import remove_checksums, write_small_store

from fedopt import own_task, run
from fedopt.data.store import checks, open_store, write_store
from fedopt.data.store.split_alias import with_test_split
from fedopt.errors import DataError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_small_store(tmp_path / "s", texts={"words.txt": "a\n"}, notes={"seed": 3, "rates": {10: 0.1, 9: 1}})
    return tmp_path / "s"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read to compute their checksum, slowly."""
    read: list[Path] = []
    original = checks.sha256

    def counted(path: Path) -> str:
        read.append(path)
        sleep(0.005)
        return original(path)

    monkeypatch.setattr(checks, "sha256", counted)
    return read


def flip(path: Path, bit: int, *, keep_time: bool = False) -> None:
    content, time = bytearray(path.read_bytes()), path.stat().st_mtime_ns
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(time, time if keep_time else time + 10**9))


def test_manifest_has_the_sha256_of_each_file(store: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    paths = [path for path in store.rglob("*.*") if path.name != "manifest.json"]
    found = {str(p.relative_to(store)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}
    assert manifest["sha256"] == found and len(found) == 13


@pytest.mark.parametrize("checked_before", [False, True])
def test_flipped_bit_in_any_file_is_found(store: Path, checked_before: bool) -> None:
    names = open_store(store).manifest["files"] if checked_before else ["train/x.npy", "words.txt"]
    for name in names:
        flip(store / name, 9)
        with pytest.raises(DataError) as caught:
            open_store(store)
        assert caught.value.path == store / name and "\n" not in str(caught.value)
        flip(store / name, 9)
        open_store(store)


def test_flipped_bit_in_the_manifest_is_found(store: Path) -> None:
    """The rest are flips in white space and in the case of the escapes, which change no value."""
    path = store / "manifest.json"
    content, accepted = path.read_bytes(), []
    for bit in range(0, 8 * len(content), 151):
        flip(path, bit)
        try:
            open_store(store)
            accepted.append(json.loads(path.read_bytes()))
        except DataError as error:
            assert "\n" not in str(error)
        path.write_bytes(content)
    assert all(manifest == json.loads(content) for manifest in accepted)


def test_files_are_read_once_until_a_time_changes(store: Path, reads: list[Path]) -> None:
    for _ in range(3):
        open_store(store)
    assert len(reads) == 13
    os.utime(store / "train" / "x.npy", (1, 1))
    open_store(store)
    open_store(store)
    assert len(reads) == 26


def test_only_reading_all_files_finds_a_flip_without_a_new_time(store: Path) -> None:
    open_store(store)
    flip(store / "train" / "x.npy", 1100, keep_time=True)
    open_store(store)
    with pytest.raises(DataError) as caught:
        open_store(store, read_all=True)
    assert caught.value.path == store / "train" / "x.npy"


def test_one_of_several_processes_reads(store: Path, reads: list[Path]) -> None:
    """Threads stand for processes: the lock belongs to an open file."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(open_store, [store] * 4))
    assert len(reads) == 13


def test_store_is_checked_without_a_cache_too(store: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    open_store(store)
    flip(store / "train" / "x.npy", 1100, keep_time=True)
    with pytest.raises(DataError):
        open_store(store)


def test_third_split_of_a_checked_store_is_not_read_again(store: Path, reads: list[Path]) -> None:
    with with_test_split(open_store(store), "train") as alias:
        assert open_store(alias).split("test").columns(0)["x"].tolist() == [[1, 2], [3, 4]]
    assert len(reads) == 13


@pytest.mark.parametrize("key", ["sha256", "checksum"])
def test_manifest_with_only_one_kind_of_checksum_is_rejected(store: Path, key: str) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    del manifest[key]
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError) as caught:
        open_store(store)
    assert caught.value.path == store / "manifest.json"


def test_run_on_damaged_data_is_refused_and_a_store_of_0_2_0_is_accepted(tmp_path: Path) -> None:
    import numpy as np
    from torch import nn

    def rows(seed: int) -> dict[str, np.ndarray]:
        drawn = np.random.default_rng(seed)
        return {"features": drawn.normal(size=(8, 2)).astype(np.float32), "label": np.arange(8) % 2}

    splits = {name: [(f"c{i}", rows(i)) for i in range(3)] for name in ("train", "test")}
    write_store(tmp_path / "s", "own", [], splits)

    def trained(rounds: int, out: str) -> float:
        task = own_task(lambda: nn.Linear(2, 2), nn.functional.cross_entropy, tmp_path / "s")
        return run(task, rounds=rounds, out=tmp_path / out, seed=1).last

    uninterrupted = trained(2, "checked")
    trained(1, "old")
    remove_checksums(tmp_path / "s")
    assert trained(2, "old") == trained(2, "unchecked") == uninterrupted
    write_store(tmp_path / "s", "own", [], splits)
    flip(tmp_path / "s" / "train" / "features.npy", 1100)
    with pytest.raises(DataError) as caught:
        trained(2, "damaged")
    assert caught.value.path == tmp_path / "s" / "train" / "features.npy"
