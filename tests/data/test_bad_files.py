"""Whatever is wrong with a file is said in one line that names it and the client, and no store is left."""

from __future__ import annotations

import json
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import publicfiles as files
import pytest

from fedopt.data.importing.datasets import Options
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import archives
from fedopt.data.readers.tabular import Roles
from fedopt.errors import UserError

Make = Callable[[Path], Path]
TABLE = "user,age,height,y,part\nzoe,1,0.5,0,train\nadam,2,1.5,1,train\nzoe,3,2.5,1,test\nzoe,4,3.5,0,train\n"
ROLES = Roles("user", "y", split="part")


def change_hdf5(split: str, client: str, field: str, value: Any) -> Make:
    def make(d: Path) -> Path:
        files.write_hdf5(d, "fed_emnist", files.emnist())
        with h5py.File(d / f"fed_emnist_{split}.h5", "r+") as file:
            del file[f"examples/{client}/{field}"]
            if value is not None:
                file[f"examples/{client}/{field}"] = value
        return d

    return make


def cut_file(make: Make, name: str, share: float) -> Make:
    def cut(d: Path) -> Path:
        path = make(d)
        target = d / name
        target.write_bytes(target.read_bytes()[: int(target.stat().st_size * share)])
        return path

    return cut


def scramble(make: Make, name: str) -> Make:
    """Overwrite a stretch in the middle."""

    def damage(d: Path) -> Path:
        path = make(d)
        data = bytearray((d / name).read_bytes())
        data[len(data) // 3 : len(data) * 2 // 3] = b"\xa5" * (len(data) * 2 // 3 - len(data) // 3)
        (d / name).write_bytes(data)
        return path

    return damage


def external_link(d: Path) -> Path:
    files.write_hdf5(d, "fed_emnist", files.emnist())
    with h5py.File(d / "fed_emnist_train.h5", "r+") as file:
        file["examples/spy"] = h5py.ExternalLink("/etc/elsewhere.h5", "/x")
    return d


def no_test_split(d: Path) -> Path:
    files.hdf5_directory(d)
    (d / "fed_emnist_test.h5").unlink()
    return d


def sql(statement: str, *values: Any) -> Make:
    def make(d: Path) -> Path:
        path = files.sqlite_all(d)
        with sqlite3.connect(path) as db:
            db.execute(statement, values)
        db.close()
        return path

    return make


def leaf_json(edit: Callable[[dict[str, Any]], Any]) -> Make:
    def make(d: Path) -> Path:
        files.leaf_directory(d)
        path = next((d / "train").iterdir())
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
        return d

    return make


def leaf_bytes(old: bytes, new: bytes) -> Make:
    def make(d: Path) -> Path:
        files.leaf_directory(d)
        path = next((d / "train").iterdir())
        path.write_bytes(path.read_bytes().replace(old, new, 1))
        return d

    return make


def fedjax(d: Path) -> Path:
    with sqlite3.connect(d / "emnist.sqlite") as db:
        db.execute("CREATE TABLE federated_data (client_id BLOB PRIMARY KEY, data BLOB)")
    db.close()
    return d / "emnist.sqlite"


FIRST = "(SELECT rowid FROM examples WHERE client_id = 'f1' AND split_name = 'all_train' LIMIT 1)"
nan = np.full((3, 28, 28), np.nan, np.float32)
BAD_EMNIST: dict[str, tuple[Make, list[str]]] = {
    "labels out of range": (
        change_hdf5("train", "f1", "label", [1, 62, 3]),
        ["fed_emnist_train.h5", "'f1'", "label 62 is out of range", "0 to 61"],
    ),
    "negative label": (
        change_hdf5("test", "f8", "label", [-1, 2]),
        ["fed_emnist_test.h5", "'f8'", "label -1"],
    ),
    "pixels not finite": (change_hdf5("train", "f1", "pixels", nan), ["train.h5", "'f1'", "not finite"]),
    "pixels out of range": (change_hdf5("train", "f1", "pixels", nan * 0 + 7), ["'f1'"]),
    "pixels of another shape": (
        change_hdf5("train", "f1", "pixels", np.ones((3, 28, 27), np.float32)),
        ["'f1'", "(28, 27)"],
    ),
    "a field is missing": (change_hdf5("train", "f1", "label", None), ["'f1'", "no field 'label'"]),
    "no examples": (
        change_hdf5("train", "f10", "label", np.empty(0, np.int32)),
        ["'f10'", "pixels 2, label 0"],
    ),
    "a link to another file": (external_link, ["train.h5", "'spy'", "link"]),
    "a cut HDF5 file": (
        cut_file(files.hdf5_directory, "fed_emnist_train.h5", 0.7),
        ["fed_emnist_train.h5", "cut"],
    ),
    "a scrambled HDF5 file": (scramble(files.hdf5_directory, "fed_emnist_test.h5"), ["fed_emnist_test.h5"]),
    "no test split": (no_test_split, ["fed_emnist_train.h5", "split 'test' not found"]),
    "a cut archive": (cut_file(files.tar_bz2, "fed_emnist.tar.bz2", 0.6), ["fed_emnist.tar.bz2", "cut"]),
    "a scrambled zip": (scramble(files.zip_file, "emnist.zip"), ["emnist.zip"]),
    "cut LZMA": (
        cut_file(files.sqlite_lzma, "emnist_all.sqlite.lzma", 0.5),
        ["emnist_all.sqlite.lzma", "cut"],
    ),
    "scrambled LZMA": (scramble(files.sqlite_lzma, "emnist_all.sqlite.lzma"), ["emnist_all.sqlite.lzma"]),
    "a cut SQLite file": (cut_file(files.sqlite_all, "emnist.sqlite", 0.5), ["emnist.sqlite", "cut"]),
    "a scrambled SQLite file": (scramble(files.sqlite_all, "emnist.sqlite"), ["emnist.sqlite"]),
    "a cut SQLite header": (cut_file(files.sqlite_all, "emnist.sqlite", 0.001), ["emnist.sqlite", "header"]),
    "another SQLite layout": (fedjax, ["no table `examples`", "federated_data"]),
    "a damaged example": (
        sql(f"UPDATE examples SET serialized_example_proto = x'0aff' WHERE rowid = {FIRST}"),
        ["emnist.sqlite", "'f1'", "an example is damaged"],
    ),
    "an example without a field": (
        sql(
            f"UPDATE examples SET serialized_example_proto = ? WHERE rowid = {FIRST}",
            files.example({"label": 1}),
        ),
        ["'f1'", "no field 'pixels'"],
    ),
    "an example of another size": (
        sql(
            f"UPDATE examples SET serialized_example_proto = ? WHERE rowid = {FIRST}",
            files.example({"label": 1, "pixels": np.ones(5, np.float32)}),
        ),
        ["'f1'", "pixels"],
    ),
    "an id that is not UTF-8": (
        sql("UPDATE examples SET client_id = CAST(x'ff41' AS TEXT) WHERE client_id = 'f1'"),
        ["emnist.sqlite", "b'\\xffA'", "not valid UTF-8"],
    ),
    "a client that has lost examples": (
        sql(f"DELETE FROM examples WHERE rowid = {FIRST}"),
        ["'f1'", "has 2 examples", "says 3"],
    ),
    "a client that has lost all examples": (
        sql("DELETE FROM examples WHERE client_id = 'f2'"),
        ["'f2'", "has no examples"],
    ),
    "cut JSON": (lambda d: leaf_bytes(b'"user_data"', b'"user_da')(d), ["train_9.json"]),
    "JSON that is not UTF-8": (leaf_bytes(b"f10", b"f\xff0"), ["train_9.json", "not valid UTF-8"]),
    "a user without data": (
        leaf_json(lambda c: c["user_data"].pop("f2")),
        ["train_9.json", "'f2'", "no lists"],
    ),
    "a user without samples": (
        leaf_json(lambda c: c["user_data"].update(f2={"x": [], "y": []})),
        ["'f2'", "no examples"],
    ),
    "samples and labels that differ": (
        leaf_json(lambda c: c["user_data"]["f1"]["y"].pop()),
        ["'f1'", "3 x and 2 y"],
    ),
    "counts that differ": (leaf_json(lambda c: c["num_samples"].__setitem__(2, 9)), ["'f1'", "says 9"]),
    "pixels missing in JSON": (leaf_json(lambda c: c["user_data"]["f1"]["x"][0].pop()), ["'f1'", "784"]),
    "NaN in JSON": (
        leaf_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, float("nan"))),
        ["train_9.json", "'f1'", "not finite"],
    ),
    "text in JSON": (leaf_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, "a")), ["'f1'"]),
    "a user who comes twice": (
        leaf_json(lambda c: (c["users"].append("f1"), c["num_samples"].append(3))),
        ["train_9.json", "'f1'", "twice"],
    ),
    "a user without a name": (leaf_json(lambda c: c["users"].__setitem__(0, [1])), ["train_9.json", "users"]),
    "half a layout": (leaf_json(lambda c: c.pop("num_samples")), ["train_9.json", "num_samples"]),
    "nothing there": (lambda d: d, ["no emnist data", "nothing"]),
}


def refuse(name: str, path: Path, to: Path, words: list[str], **options: Any) -> None:
    """The import fails with one line that holds all words, and the directory of the store stays empty."""
    with pytest.raises(UserError) as caught:
        import_dataset(name, [path], to / "store", Options(**options))
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text
    assert list(to.iterdir()) == []


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return tmp_path / "in", tmp_path / "out"


@pytest.mark.parametrize(("make", "words"), BAD_EMNIST.values(), ids=BAD_EMNIST.keys())
def test_bad_files_are_refused_by_name(places: tuple[Path, Path], make: Make, words: list[str]) -> None:
    refuse("emnist", make(places[0]), places[1], words)


@pytest.mark.parametrize("kind", ["hdf5", "sqlite"])
@pytest.mark.parametrize(("name", "field"), [("shakespeare", "snippets"), ("stackoverflow", "tokens")])
def test_text_that_is_not_utf8_is_refused(
    places: tuple[Path, Path], kind: str, name: str, field: str
) -> None:
    data = getattr(files, name)()
    client = sorted(data["train"])[0]
    data["train"][client][field][0] = b"caf\xe9"
    files.write_counts(places[0])
    if kind == "hdf5":
        files.write_hdf5(places[0], name, data)
    else:
        files.write_sqlite(places[0] / f"{name}.sqlite", data)
    refuse(name, places[0], places[1], [name, repr(client), "not valid UTF-8"])


@pytest.mark.parametrize("title", ["word_count", "tag_count"])
def test_a_missing_vocabulary_is_named(places: tuple[Path, Path], title: str) -> None:
    files.write_hdf5(places[0], "stackoverflow", files.stackoverflow())
    files.write_counts(places[0])
    (places[0] / f"stackoverflow.{title}").unlink()
    refuse("stackoverflow", places[0], places[1], [f"stackoverflow.{title} not found", f"{title}.tar.bz2"])


@pytest.mark.parametrize(
    ("title", "text"), [("word_count", "word\n"), ("tag_count", "[1]"), ("tag_count", "{")]
)
def test_a_damaged_vocabulary_is_named(places: tuple[Path, Path], title: str, text: str) -> None:
    files.write_hdf5(places[0], "stackoverflow", files.stackoverflow())
    files.write_counts(places[0])
    (places[0] / f"stackoverflow.{title}").write_text(text)
    refuse("stackoverflow", places[0], places[1], [f"stackoverflow.{title}", "expected"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], ["data_batch_2.bin", "not a whole number of records of 3,073"]),
        (
            lambda data: b"\x0a" + data[1:],
            ["data_batch_2.bin", "record 0: label 10 is out of range", "0 to 9"],
        ),
        (lambda data: b"", ["data_batch_2.bin", "0 bytes"]),
        (None, ["data_batch_2.bin not found"]),
    ],
)
def test_bad_cifar_files_are_refused(places: tuple[Path, Path], change: Any, words: list[str]) -> None:
    files.write_cifar(places[0], 10, per_file=3)
    path = places[0] / "data_batch_2.bin"
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    refuse("cifar10", places[0], places[1], words)


def test_pickled_cifar_files_are_never_opened(places: tuple[Path, Path]) -> None:
    (places[0] / "data_batch_1").write_bytes(b"\x80\x02}q\x00.")
    refuse("cifar10", places[0], places[1], ["pickled files are never opened", "binary version"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("adam,2", "adam,two", ["row 3", "'adam'", "'age'", "'two'"]),
        ("adam,2", "adam,", ["row 3", "'adam'", "'age'"]),
        ("adam,2", "adam,inf", ["row 3", "'adam'", "'age'", "not finite"]),
        ("adam,2", ",2", ["row 3", "no client"]),
        ("adam,2", "adam,2,2", ["row 3", "6 cells", "5"]),
        ("user", "usr", ["unknown column 'user'", "did you mean 'usr'"]),
        ("test", "tset", ["row 4", "'zoe'", "'tset'", "train, test, heldout"]),
        ("test", "train", ["split 'test' not found"]),
        (",height", ",age", ["two columns of the same name"]),
    ],
)
def test_bad_tables_are_refused(places: tuple[Path, Path], old: str, new: str, words: list[str]) -> None:
    (places[0] / "t.csv").write_text(TABLE.replace(old, new))
    refuse("own", places[0] / "t.csv", places[1], ["t.csv", *words], roles=ROLES)


def test_a_table_that_is_not_utf8_is_refused(places: tuple[Path, Path]) -> None:
    (places[0] / "t.csv").write_bytes(TABLE.encode().replace(b"adam", b"ad\xe9m"))
    refuse("own", places[0] / "t.csv", places[1], ["t.csv", "not valid UTF-8"], roles=ROLES)


def tar_with(member: tarfile.TarInfo, content: bytes = b"") -> Make:
    def make(d: Path) -> Path:
        with tarfile.open(d / "evil.tar.gz", "w:gz") as archive:
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
        return d / "evil.tar.gz"

    return make


def link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("fed_emnist_train.h5")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def zip_with(name: str, mode: int = 0o100644) -> Make:
    def make(d: Path) -> Path:
        with zipfile.ZipFile(d / "evil.zip", "w") as archive:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, b"/etc/passwd")
        return d / "evil.zip"

    return make


def bomb_tar(d: Path) -> Path:
    with tarfile.open(d / "bomb.tar.bz2", "w:bz2") as archive:
        member = tarfile.TarInfo("fed_emnist_train.h5")
        member.size = archives.MAX_SMALL + 1
        with open("/dev/zero", "rb") as zeros:
            archive.addfile(member, zeros)
    return d / "bomb.tar.bz2"


def bomb_zip(d: Path) -> Path:
    with zipfile.ZipFile(d / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.h5", bytes(archives.MAX_SMALL + 1))
    data = (d / "bomb.zip").read_bytes()
    said, truth = struct.pack("<I", 1000), struct.pack("<I", archives.MAX_SMALL + 1)
    (d / "bomb.zip").write_bytes(data.replace(truth, said))  # the headers state 1000 bytes
    return d / "bomb.zip"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (tar_with(tarfile.TarInfo("../fed_emnist_train.h5"), b"x"), ["'../fed_emnist_train.h5'", "outside"]),
        (tar_with(tarfile.TarInfo("/tmp/fed_emnist_train.h5"), b"x"), ["outside"]),
        (tar_with(tarfile.TarInfo("a/../../b.h5"), b"x"), ["outside"]),
        (tar_with(link(tarfile.SYMTYPE)), ["link"]),
        (tar_with(link(tarfile.LNKTYPE)), ["link"]),
        (tar_with(link(tarfile.CHRTYPE)), ["device"]),
        (zip_with("../a.h5"), ["outside"]),
        (zip_with("..\\a.h5"), ["outside"]),
        (zip_with("C:\\a.h5"), ["outside"]),
        (zip_with("a.h5", 0o120777), ["link"]),
        (bomb_tar, ["bomb.tar.bz2", "unpacks to more than 67,108,864 bytes", "100 times"]),
        (bomb_zip, ["bomb.zip"]),
    ],
)
def test_archives_cannot_climb_out_or_blow_up(
    places: tuple[Path, Path], make: Make, words: list[str]
) -> None:
    path = make(places[0])
    before = sorted(places[0].rglob("*"))
    refuse("emnist", path, places[1], words)
    assert sorted(places[0].parent.rglob("*")) == sorted([*before, *places])
