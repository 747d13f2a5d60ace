"""Readers and parsers with a valid file each, which the fuzz tests damage.

A damaged file must be read, or be rejected with an error of one line that leaves no files behind.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import publicfiles as files
from smallstores import remove_checksums, write_small_store

from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers import example_proto
from fedopt.data.readers.base import TableColumns
from fedopt.data.store import open_store
from fedopt.data.store.describe import describe
from fedopt.errors import FedoptError


class FuzzTarget(NamedTuple):
    """`make` writes valid files into a directory, `damaged` is one of them, and `read` reads all of them."""

    make: Callable[[Path], object]
    damaged: str
    read: Callable[[Path, Path], object]  # directory, and a directory for output

    def seed(self, scratch: Path) -> bytes:
        """Return the content of the valid file."""
        source = _fresh(scratch / "source")
        self.make(source)
        return (source / self.damaged).read_bytes()

    def run(self, content: bytes, scratch: Path) -> bool:
        """Read the files with `content` in the damaged file. Return whether they were accepted."""
        source, output = scratch / "source", _fresh(scratch / "output")
        (source / self.damaged).write_bytes(content)
        try:
            self.read(source, output)
            return True
        except FedoptError as error:
            assert "\n" not in str(error), str(error)
            assert list(output.iterdir()) == [], list(output.iterdir())
            return False


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _importer(
    dataset: str, name: str = "", columns: TableColumns | None = None
) -> Callable[[Path, Path], None]:
    def read(source: Path, output: Path) -> None:
        options = ImportOptions(columns=columns, train_clients=2, test_clients=2)
        store = import_dataset(dataset, [source / name], output / "store", options).store
        describe(store)
        shutil.rmtree(output / "store")

    return read


def _table(d: Path, format: str) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table(
        {"who": ["a", "b"] * 4, "y": ["x", "y", "z", "x"] * 2, "x": np.arange(8) / 3, "n": range(8)}
    )
    if format == "parquet":
        parquet.write_table(table, d / "t.parquet")
    else:
        csv.write_csv(table, d / "t.csv")


def _gzip(d: Path) -> None:
    for path in files.write_hdf5(d, "fed_emnist", files.emnist()):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def _tar(d: Path) -> None:
    members = files.write_hdf5(d, "fed_emnist", files.emnist())
    files.write_tar(d / "fed_emnist.tar", members)
    for member in members:
        member.unlink()


def _stackoverflow(d: Path) -> None:
    files.write_hdf5(d, "stackoverflow", files.stackoverflow())
    files.write_counts(d)


def _shakespeare(d: Path) -> None:
    files.write_hdf5(d, "shakespeare", files.shakespeare())


def _example(d: Path) -> None:
    (d / "example").write_bytes(
        files.example({"pixels": np.arange(5, dtype=np.float32), "label": 300, "t": b"x"})
    )


def _decode_example(source: Path, output: Path) -> None:
    content = (source / "example").read_bytes()
    try:
        example_proto.feature_names(content)
        example_proto.decode(content, ("pixels", "label", "t"))
    except ValueError:
        pass  # the documented error, to which the reader adds file and client


def _read_store(source: Path, output: Path) -> None:
    store = open_store(source / "s")
    describe(store)
    for name in store.manifest["splits"]:
        split = store.split(name)
        assert len(list(split.ids)) == len(split.sizes)
        for client in range(min(len(split.sizes), split.summary["clients"])):
            split.columns(client)


def _small_store(d: Path) -> None:
    write_small_store(d / "s", notes={"format": "TFF", "options": {}}, texts={"vocabulary.txt": "a\n"})
    remove_checksums(d / "s")  # they would reject every damaged file before it is read


LEAF = "train/all_data_0_niid_0_keep_0_train_9.json"
TABLE = TableColumns("who", "y")
TARGETS: dict[str, FuzzTarget] = {
    "hdf5_images": FuzzTarget(files.hdf5_directory, "fed_emnist_train.h5", _importer("emnist")),
    "hdf5_texts": FuzzTarget(_shakespeare, "shakespeare_train.h5", _importer("shakespeare")),
    "sqlite": FuzzTarget(files.sqlite_all, "emnist.sqlite", _importer("emnist")),
    "example_proto": FuzzTarget(_example, "example", _decode_example),
    "leaf": FuzzTarget(files.leaf_directory, LEAF, _importer("emnist")),
    "cifar": FuzzTarget(lambda d: files.write_cifar(d, 100, 3), "train.bin", _importer("cifar100")),
    "csv": FuzzTarget(lambda d: _table(d, "csv"), "t.csv", _importer("own", "t.csv", TABLE)),
    "parquet": FuzzTarget(lambda d: _table(d, "parquet"), "t.parquet", _importer("own", "t.parquet", TABLE)),
    "tar": FuzzTarget(_tar, "fed_emnist.tar", _importer("emnist", "fed_emnist.tar")),
    "tar_bz2": FuzzTarget(files.tar_bz2, "fed_emnist.tar.bz2", _importer("emnist", "fed_emnist.tar.bz2")),
    "zip": FuzzTarget(files.zip_file, "emnist.zip", _importer("emnist", "emnist.zip")),
    "gzip": FuzzTarget(_gzip, "fed_emnist_train.h5.gz", _importer("emnist")),
    "lzma": FuzzTarget(
        files.sqlite_lzma, "emnist_all.sqlite.lzma", _importer("emnist", "emnist_all.sqlite.lzma")
    ),
    "word_count": FuzzTarget(_stackoverflow, "stackoverflow.word_count", _importer("stackoverflow")),
    "tag_count": FuzzTarget(_stackoverflow, "stackoverflow.tag_count", _importer("stackoverflow")),
    "manifest": FuzzTarget(_small_store, "s/manifest.json", _read_store),
    "store_offsets": FuzzTarget(_small_store, "s/train/offsets.npy", _read_store),
    "store_ids": FuzzTarget(_small_store, "s/train/ids.values.npy", _read_store),
    "store_values": FuzzTarget(_small_store, "s/train/t.offsets.npy", _read_store),
}
