"""Every public format gives the same store."""

from __future__ import annotations

import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import publicfiles as files
import pytest

from fedopt.data.importing import encode
from fedopt.data.importing.datasets import Options
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import example_proto
from fedopt.data.readers.tabular import Roles
from fedopt.data.store import Ragged, Store
from fedopt.errors import UserError

Make = Callable[[Path], Path]


def bring(name: str, path: Path, to: Path, **options: Any) -> Store:
    return import_dataset(name, [path], to, Options(**options)).store


def rows(column: Any) -> list[Any]:
    return [row.tolist() for row in column.rows()] if isinstance(column, Ragged) else column.tolist()


# --- the same data in every format ------------------------------------------------------------------------


EMNIST = [
    files.hdf5_directory,
    files.hdf5_file,
    files.tar_bz2,
    files.directory_of_archives,
    files.zip_file,
    files.sqlite_all,
    files.sqlite_lzma,
    files.sqlite_xz,
    files.leaf_directory,
]


@pytest.mark.parametrize("make", EMNIST, ids=lambda make: make.__name__)
def test_emnist_is_the_same_from_every_format(tmp_path: Path, make: Make) -> None:
    (tmp_path / "in").mkdir()
    store = bring("emnist", make(tmp_path / "in"), tmp_path / "out")
    for split, clients in files.emnist().items():
        stored = store.split(split)
        assert list(stored.ids) == sorted(clients)
        for at, client in enumerate(stored.ids):
            columns = stored.columns(at)
            expected = np.rint(clients[client]["pixels"].astype(np.float64) * 255)
            pixels = np.asarray(columns["pixels"])
            assert np.array_equal(pixels, expected) and pixels.dtype == np.uint8
            assert rows(columns["label"]) == clients[client]["label"].tolist()
    assert [path.name for path in tmp_path.iterdir() if path.name != "in"] == ["out"]


def test_pixels_of_more_than_256_levels_stay_as_they_are(tmp_path: Path) -> None:
    data = files.emnist(levels=1000)
    files.write_hdf5(tmp_path, "fed_emnist", data)
    pixels = np.asarray(bring("emnist", tmp_path, tmp_path / "out").split("train").columns(0)["pixels"])
    assert pixels.dtype == np.float32 and np.array_equal(pixels, data["train"]["f1"]["pixels"])


@pytest.mark.parametrize(("digits", "label"), [(False, 61), (True, 9)])
def test_digits_are_chosen_where_a_file_holds_both(tmp_path: Path, digits: bool, label: int) -> None:
    def one(label: int) -> dict[str, Any]:
        return {"a": {"pixels": np.ones((1, 28, 28), np.float32), "label": np.array([label])}}

    both = {
        "all_train": one(61),
        "all_test": one(61),
        "digits_only_train": one(9),
        "digits_only_test": one(9),
    }
    path = files.write_sqlite(tmp_path / "emnist_all.sqlite", both)
    store = bring("emnist", path, tmp_path / "out", digits=digits)
    assert rows(store.split("test").columns(0)["label"]) == [label]


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
def test_cifar100_of_tff(tmp_path: Path, kind: str) -> None:
    data = files.cifar100()
    if kind == "hdf5":
        path = files.write_hdf5(tmp_path, "fed_cifar100", data)[0]
    else:
        path = files.write_sqlite(tmp_path / "cifar100.sqlite", data)
    columns = bring("cifar100", path, tmp_path / "out").split("train").columns(1)
    for field in ("image", "label", "coarse_label"):
        assert np.array_equal(columns[field], data["train"]["1"][field])


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
def test_shakespeares_snippets_are_kept_byte_by_byte(tmp_path: Path, kind: str) -> None:
    data = files.shakespeare()
    if kind == "hdf5":
        path = files.write_hdf5(tmp_path, "shakespeare", data)[0]
    else:
        path = files.write_sqlite(tmp_path / "shakespeare.sqlite", data)
    train = bring("shakespeare", path, tmp_path / "out").split("train")
    assert list(train.ids) == ["HAMLET_GHOST", "HAMLET_HAMLET"]
    for at, role in enumerate(train.ids):
        snippets = [bytes(row) for row in rows(train.columns(at)["snippets"])]
        assert snippets == data["train"][role]["snippets"]


def test_leafs_windows_become_the_texts_they_were_cut_from(tmp_path: Path) -> None:
    first, second = "".join(chr(97 + i * 7 % 26) for i in range(95)), "Enter the Ghost. " * 6
    x, y = (a + b for a, b in zip(files.windows(first), files.windows(second), strict=True))
    files.write_leaf(tmp_path, "all_data", "train", {"ROLE": (x, y)})
    test = files.write_leaf(tmp_path, "all_data", "test", {"ROLE": files.windows(first)})
    # LEAF's own test files state more samples than they hold
    test.write_text(test.read_text().replace('"num_samples": [15]', '"num_samples": [94]'))
    store = bring("shakespeare", tmp_path, tmp_path / "out")
    snippets = rows(store.split("train").columns(0)["snippets"])
    assert [bytes(row).decode() for row in snippets] == [first, second]
    assert "joined" in store.manifest["notes"]["snippets"]


@pytest.mark.parametrize("kind", ["hdf5", "sqlite", "archives"])
def test_stack_overflow_words_and_tags_are_numbered_by_their_counts(tmp_path: Path, kind: str) -> None:
    data = files.stackoverflow()
    files.write_counts(tmp_path)
    if kind == "sqlite":
        path = files.write_sqlite(tmp_path / "stackoverflow.sqlite", data)
    else:
        members = files.write_hdf5(tmp_path, "stackoverflow", data)
        path = members[0]
    if kind == "archives":
        path = files.write_tar(tmp_path / "stackoverflow.tar.bz2", members)
        for name in ("stackoverflow.word_count", "stackoverflow.tag_count"):
            files.write_tar(tmp_path / f"{name}.tar.bz2", [tmp_path / name])
            members.append(tmp_path / name)
        for member in members:
            member.unlink()
    store = bring("stackoverflow", path, tmp_path / "out")
    train = store.split("train")
    # words: a 1, to 2, list 3, how 4, sort 5, why 6, ? 7; tags: python 0, c++ 1, java 2, sorting 3
    assert {name: rows(column) for name, column in train.columns(0).items()} == {
        "tokens": [[6, 10001, 7]],
        "title": [[6, 7]],
        "tags": [[1]],
    }
    assert {name: rows(column) for name, column in train.columns(1).items()} == {
        "tokens": [[4, 2, 5, 1, 3], [1]],
        "title": [[5, 3], []],
        "tags": [[0, 3], [2]],
    }
    assert train.columns(0)["tokens"].values.dtype == np.uint16
    assert store.text("vocabulary.txt").split() == "a to list how sort why ?".split()
    assert store.text("tags.txt").split() == ["python", "c++", "java", "sorting"]
    assert list(store.split("heldout").ids) == ["00000005"]


def test_the_ten_thousand_and_first_word_is_out_of_vocabulary() -> None:
    words = [f"w{i}".encode() for i in range(1, 10_002)]
    number = encode.StackOverflow(words, [])
    assert number._ids([b"w1 w10000 w10001 w10002"]).values.tolist() == [1, 10000, 10001, 10001]


# --- the official CIFAR binaries --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 100])
@pytest.mark.parametrize("packed", [False, True])
def test_official_cifar_files_are_dealt_out_once_each(tmp_path: Path, version: int, packed: bool) -> None:
    folder = tmp_path / f"cifar-{version}-batches-bin"
    folder.mkdir()
    truth = files.write_cifar(folder, version, per_file=6)
    path = tmp_path / f"cifar-{version}-binary.tar.gz"
    if packed:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, folder.name)
    store = bring(
        f"cifar{version}", path if packed else folder, tmp_path / "out", train_clients=3, test_clients=2
    )
    for split, clients in (("train", 3), ("test", 2)):
        stored = store.split(split)
        assert list(stored.ids) == [str(i) for i in range(clients)]
        assert len(set(stored.sizes.tolist())) == 1
        seen = []
        for at in range(clients):
            columns = stored.columns(at)
            images = [image.tobytes() for image in np.asarray(columns["image"])]
            seen += list(zip(rows(columns["label"]), images, strict=True))
            if version == 100:
                assert rows(columns["coarse_label"]) == [label // 5 for label in rows(columns["label"])]
        assert sorted(seen) == sorted((label, image.tobytes()) for label, image in truth[split])


def test_a_partition_is_fixed_by_its_seed(tmp_path: Path) -> None:
    files.write_cifar(tmp_path, 10, per_file=20)
    labels = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train = bring("cifar10", tmp_path, tmp_path / "out" / name, seed=seed, train_clients=5).split("train")
        labels.append([rows(train.columns(at)["label"]) for at in range(5)])
    assert labels[0] == labels[1] != labels[2]


# --- a user's own table -----------------------------------------------------------------------------------

TABLE = "user,age,height,y,part\nzoe,1,0.5,0,train\nadam,2,1.5,1,train\nzoe,3,2.5,1,test\nzoe,4,3.5,0,train\n"
ROLES = Roles("user", "y", split="part")


def parquet(path: Path, table: str) -> Path:
    import pyarrow.csv
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.csv.read_csv(BytesIO(table.encode())), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "semicolons", "parquet"])
def test_rows_of_a_table_go_to_their_clients(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE.replace(",", ";") if kind == "semicolons" else "\ufeff" + TABLE, encoding="utf-8")
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        path = parquet(tmp_path / "table.parquet", TABLE)
    store = bring("own", path, tmp_path / "out", roles=ROLES)
    train, test = store.split("train"), store.split("test")
    assert list(train.ids) == ["adam", "zoe"] and list(test.ids) == ["zoe"]
    zoe = train.columns(1)
    assert rows(zoe["features"]) == [[1, 0.5], [4, 3.5]] and rows(zoe["label"]) == [0, 0]
    assert zoe["features"].dtype == np.float32 and zoe["label"].dtype == np.int64
    assert store.manifest["notes"]["features"] == ["age", "height"]


def test_splits_of_a_table_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("c,x,y\na,1,2.5\nb,2,3\n")
    (tmp_path / "test.csv").write_text("c,x,y\na,5,6\n")
    store = bring("own", tmp_path, tmp_path / "out", roles=Roles("c", "y"))
    assert list(store.split("train").ids) == ["a", "b"] and list(store.split("test").ids) == ["a"]
    assert rows(store.split("train").columns(0)["label"]) == [2.5]


def test_without_splits_a_share_of_each_clients_rows_is_held_out(tmp_path: Path) -> None:
    lines = [f"{client},{i},{i % 2}" for client, n in (("a", 10), ("b", 2), ("c", 1)) for i in range(n)]
    (tmp_path / "t.csv").write_text("c,x,y\n" + "\n".join(lines) + "\n")
    store = bring("own", tmp_path / "t.csv", tmp_path / "out", roles=Roles("c", "y", test_share=0.3))
    train, test = store.split("train"), store.split("test")
    assert train.sizes.tolist() == [7, 1, 1] and test.sizes.tolist() == [3, 1]  # c has nothing to spare
    a = rows(train.columns(0)["features"]) + rows(test.columns(0)["features"])
    assert sorted(a) == [[i] for i in range(10)]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1....PAR1")
    code = f"""
import sys; sys.modules["pyarrow"] = None
from pathlib import Path
from fedopt.data.importing.importer import *
from fedopt.data.readers.tabular import Roles
import_dataset("own", [Path({str(tmp_path / "t.parquet")!r})], Path({str(tmp_path / "out")!r}),
               Options(roles=Roles("c", "y")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'fedopt[parquet]'" in done.stderr.splitlines()[-1]


# --- the wire format --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (150, "9601"),
        (300, "ac02"),
        (-1, "ff" * 9 + "01"),
        (2**62, "80" * 8 + "40"),
    ],
)  # 150 and 300 are the worked examples of protobuf's documentation
def test_varints_are_as_protobufs_documentation_says(number: int, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert example_proto.varints(raw).tolist() == [number] and files.varint(number) == raw
    assert example_proto.varints(raw * 3).tolist() == [number] * 3


def test_an_example_may_have_unpacked_numbers_and_fields_from_the_future() -> None:
    numbers = files.field(1, files.field(1, b"n") + files.field(2, files.field(3, b"\x08\x96\x01\x08\x05")))
    floats = files.field(
        1, files.field(1, b"f") + files.field(2, files.field(2, b"\x0d" + struct.pack("<f", 1.5)))
    )
    unknown = b"\x18\x07" + b"\x25" + bytes(4) + b"\x29" + bytes(8) + files.field(9, b"?")
    found = example_proto.decode(unknown + files.field(1, numbers + floats), {"n", "f"})
    assert found["n"].tolist() == [150, 5] and found["f"].tolist() == [1.5]


def test_every_cut_of_an_example_is_noticed_or_lacks_the_field() -> None:
    blob = files.example({"label": 7, "pixels": np.ones(3, np.float32)})
    for length in range(len(blob)):
        try:
            assert len(example_proto.decode(blob[:length], {"label", "pixels"})) < 2
        except ValueError:
            pass


# --- importing again --------------------------------------------------------------------------------------


def test_the_same_files_are_imported_once_and_others_only_on_request(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    first = import_dataset("emnist", [tmp_path], tmp_path / "out")
    again = import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert first.fresh and not again.fresh
    files.write_hdf5(tmp_path, "fed_emnist", files.emnist(levels=1000))
    with pytest.raises(UserError, match="holds emnist from other files; add --replace"):
        import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert import_dataset("emnist", [tmp_path], tmp_path / "out", Options(replace=True)).fresh


def test_a_damaged_store_is_imported_again(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    import_dataset("emnist", [tmp_path], tmp_path / "out")
    (tmp_path / "out" / "train" / "label.npy").unlink()
    assert import_dataset("emnist", [tmp_path], tmp_path / "out").fresh


def test_a_directory_with_other_things_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("...")
    with pytest.raises(UserError, match="is not imported data"):
        import_dataset(
            "emnist", [files.hdf5_directory(tmp_path / "in")], tmp_path / "home", Options(replace=True)
        )
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_two_sets_in_one_directory_must_be_told_apart(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    files.write_sqlite(tmp_path / "emnist.sqlite", files.emnist())
    with pytest.raises(UserError, match=r"several sets .*/fed_emnist_train\.h5, .*emnist\.sqlite"):
        import_dataset("emnist", [tmp_path], tmp_path / "out")
    assert import_dataset("emnist", [tmp_path / "fed_emnist_test.h5"], tmp_path / "out").fresh


def test_a_damaged_file_of_another_dataset_does_not_matter(tmp_path: Path) -> None:
    files.hdf5_directory(tmp_path)
    (tmp_path / "shakespeare_train.h5").write_bytes(b"\x89HDF\r\n\x1a\n and no more")
    assert import_dataset("emnist", [tmp_path], tmp_path / "out").fresh


def test_a_link_to_a_store_is_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        import_dataset("emnist", [files.hdf5_directory(tmp_path / "in")], tmp_path / "link")
    assert (tmp_path / "real" / "manifest.json").exists() and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "link", "real"]
