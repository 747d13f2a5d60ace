"""Small files that declare much data or refer to other files. Each function returns the path to import."""

from __future__ import annotations

import gzip
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
import publicfiles as files
import pyarrow as pa
from pyarrow import parquet

GIGABYTE = 1 << 30


def unallocated_hdf5(d: Path) -> Path:
    """A file of a few kilobytes whose datasets declare a gigabyte each and store nothing."""
    for split in ("train", "test"):
        with h5py.File(d / f"fed_emnist_{split}.h5", "w") as file:
            for client in ("a", "b", "c"):
                group = file.create_group(f"examples/{client}")
                rows = GIGABYTE // (4 * 784)
                group.create_dataset("pixels", (rows, 28, 28), np.float32, chunks=(64, 28, 28))
                group.create_dataset("label", (rows,), np.int32)
    return d


def repeated_text_hdf5(d: Path, *, chunked: bool = False) -> Path:
    """Many rows refer to the same megabyte of text."""
    for split in ("train", "test"):
        with h5py.File(d / f"shakespeare_{split}.h5", "w") as file:
            group = file.create_group("examples/a")
            options = {"chunks": (256,), "compression": "gzip"} if chunked else {}
            data = group.create_dataset("snippets", (4096,), h5py.string_dtype(), **options)
            data[:] = ["x" * (1 << 20)] + [""] * 4095 if not chunked else "y"
    for split in ("train", "test"):
        path = d / f"shakespeare_{split}.h5"
        if chunked:
            continue
        with h5py.File(path) as file:
            start = file["examples/a/snippets"].id.get_offset()
        content = bytearray(path.read_bytes())
        content[start : start + 16 * 4096] = bytes(content[start : start + 16]) * 4096
        path.write_bytes(content)
    return d


def linked_examples(kind: str) -> files.Any:
    """The group /examples is a link to another group, or to another file."""

    def make(d: Path) -> Path:
        files.write_hdf5(d, "fed_emnist", files.emnist())
        for split in ("train", "test"):
            with h5py.File(d / f"fed_emnist_{split}.h5", "r+") as file:
                file.move("examples", "elsewhere")
            (d / f"fed_emnist_{split}.h5").rename(d / f"{split}.hidden")
            with h5py.File(d / f"fed_emnist_{split}.h5", "w") as file:
                external = h5py.ExternalLink(str(d / f"{split}.hidden"), "/elsewhere")
                file.create_group("elsewhere")
                file["examples"] = external if kind == "external" else h5py.SoftLink("/elsewhere")
        return d

    return make


def long_name_tar(d: Path, size: int = GIGABYTE // 2) -> Path:
    """A compressed archive whose first member has a long-name header of `size` bytes."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, size
    with gzip.open(d / "fed_emnist.tar.gz", "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
        stream.write(tarfile.TarInfo("fed_emnist_train.h5").tobuf())
    return d / "fed_emnist.tar.gz"


def sparse_map_tar(d: Path) -> Path:
    """An archive whose member begins with a map of 100 million numbers, in GNU's sparse format 1.0."""
    header = tarfile.TarInfo("fed_emnist_train.h5")
    header.size = 200 << 20
    header.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    with gzip.open(d / "fed_emnist.tar.gz", "wb", compresslevel=1) as stream:
        stream.write(header.tobuf(tarfile.PAX_FORMAT))
        stream.write(b"99999999\n".ljust(512, b"0"))
        for _ in range(header.size >> 20):
            stream.write(b"0\n" * (1 << 19))
    return d / "fed_emnist.tar.gz"


def empty_lists_leaf(d: Path) -> Path:
    """27 MB of empty lists, which need 20 times as much memory."""
    for split in ("train", "test"):
        (d / f"{split}.json").write_bytes(
            b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"y": [1], "x": ['
            + b"[]," * (9 << 20)
            + b"[]]}}}"
        )
    return d


def skipped_member_tar(d: Path) -> Path:
    """A directory member of half a gigabyte: nothing is written, but its bytes are decompressed."""
    header = tarfile.TarInfo("data")
    header.type, header.size = tarfile.DIRTYPE, GIGABYTE // 2
    content = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    with gzip.open(d / "fed_emnist.tar.gz", "wb", compresslevel=1) as stream:
        stream.write(content)
        for _ in range(header.size >> 20):
            stream.write(bytes(1 << 20))
        stream.write(tarfile.TarInfo("fed_emnist_train.h5").tobuf())
    return d / "fed_emnist.tar.gz"


def many_headers_tar(d: Path) -> Path:
    """A compressed archive of 100 members without content, each with a header of 60 kB."""
    with tarfile.open(d / "fed_emnist.tar.gz", "w:gz") as archive:
        for number in range(100):
            member = tarfile.TarInfo(f"m{number}")
            member.pax_headers = {"comment": "A" * 60_000}
            archive.addfile(member)
    return d / "fed_emnist.tar.gz"


def generated_column(d: Path) -> Path:
    """An SQLite table whose blobs are computed while they are read."""
    path = d / "emnist.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            """CREATE TABLE examples (split_name TEXT, client_id TEXT, n INTEGER,
               serialized_example_proto BLOB AS (zeroblob(n)))"""
        )
        for split in ("all_train", "all_test"):
            db.execute("INSERT INTO examples VALUES (?, 'a', 900000000)", (split,))
    db.close()
    return path


def many_rows_parquet(d: Path, rows: int = 4_000_000) -> Path:
    """A Parquet file of some kilobytes with millions of equal rows."""
    client = pa.DictionaryArray.from_arrays(np.zeros(1 << 20, np.int32), ["a"])
    zeros = pa.array(np.zeros(1 << 20, np.float32))
    batch = pa.table({"client": client, "label": pa.array(np.zeros(1 << 20, np.int8)), "a": zeros})
    with parquet.ParquetWriter(d / "t.parquet", batch.schema, compression="zstd") as writer:
        for _ in range(rows >> 20):
            writer.write_table(batch)
    return d / "t.parquet"


def long_text_parquet(d: Path) -> Path:
    """Every row has the same client id of a megabyte, which the file holds once."""
    client = pa.DictionaryArray.from_arrays(np.zeros(8192, np.int32), ["a" * (1 << 20)])
    table = pa.table({"client": client, "label": np.zeros(8192, np.int8), "a": np.ones(8192)})
    parquet.write_table(table, d / "t.parquet", compression="zstd", store_schema=False)
    return d / "t.parquet"


def repeated_text_parquet(d: Path) -> Path:
    """Clients and labels are one text of 65,000 bytes, which the file holds once."""
    text = pa.DictionaryArray.from_arrays(np.zeros(16_384, np.int32), ["a" * 65_000])
    table = pa.table({"client": text, "label": text, "a": np.ones(16_384)})
    parquet.write_table(table, d / "t.parquet", compression="zstd")
    return d / "t.parquet"


def many_columns_csv(d: Path) -> Path:
    """A header of four million names."""
    (d / "t.csv").write_bytes(b"client,label" + b"," * 4_000_000 + b"\n")
    return d / "t.csv"


def nested_zip(d: Path) -> Path:
    """Archives inside an archive share one limit."""
    zeros = gzip.compress(bytes(60 << 20), 1)
    with zipfile.ZipFile(d / "emnist.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"fed_emnist_{number}_train.h5.gz", zeros)
    return d / "emnist.zip"


def sparse_cifar(d: Path) -> Path:
    """A file without any allocated block that is a terabyte long."""
    files.write_cifar(d, 100, 3)
    with open(d / "train.bin", "r+b") as file:
        file.truncate(3074 << 28)
    return d


def compound_text_hdf5(d: Path) -> Path:
    """Records of a text of variable length: the declared size is that of the references."""
    kind = np.dtype([("text", h5py.string_dtype())])
    for split in ("train", "test"):
        with h5py.File(d / f"shakespeare_{split}.h5", "w") as file:
            data = file.create_dataset("examples/a/snippets", (2,), kind)
            data[:] = np.array([("x",), ("y",)], kind)
    return d


def large_chunk_hdf5(d: Path) -> Path:
    """One image in a compressed chunk of 157 MB."""
    files.write_hdf5(d, "fed_emnist", files.emnist())
    with h5py.File(d / "fed_emnist_train.h5", "r+") as file:
        group = file["examples"][min(file["examples"])]
        del group["pixels"]
        group.create_dataset(
            "pixels", (1, 28, 28), np.float32, maxshape=(None, 28, 28), chunks=(50_000, 28, 28), compression=1
        )
    return d


def many_columns_parquet(d: Path) -> Path:
    """50,001 columns."""
    column = pa.array([0.0])
    parquet.write_table(pa.table({f"c{i}": column for i in range(50_001)}), d / "t.parquet")
    return d / "t.parquet"
