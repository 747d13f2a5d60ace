"""Write small files in the public formats, independently of the code under test.

A dataset is {split: {client: {field: values}}}; images are float32 (n, 28, 28) or uint8 (n, 32, 32, 3),
labels integers (n,), texts lists of bytes.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Fields = Mapping[str, Any]
Data = Mapping[str, Mapping[str, Fields]]


def emnist(levels: int = 256) -> dict[str, dict[str, dict[str, Any]]]:
    """Three train writers with 2, 1 and 3 images, and two test writers with 1 and 2 images."""
    draw = np.random.default_rng(1)

    def writer(n: int) -> dict[str, Any]:
        pixels = draw.integers(0, levels, (n, 28, 28)) / (levels - 1)
        return {"pixels": pixels.astype(np.float32), "label": draw.integers(0, 62, n).astype(np.int32)}

    return {
        "train": {"f10": writer(2), "f2": writer(1), "f1": writer(3)},
        "test": {"f7": writer(1), "f8": writer(2)},
    }


def cifar100() -> dict[str, dict[str, dict[str, Any]]]:
    draw = np.random.default_rng(2)

    def client(n: int) -> dict[str, Any]:
        fine = draw.integers(0, 100, n)
        images = draw.integers(0, 256, (n, 32, 32, 3)).astype(np.uint8)
        return {"image": images, "label": fine, "coarse_label": fine // 5}

    return {"train": {"0": client(2), "1": client(3)}, "test": {"0": client(1)}}


def shakespeare() -> dict[str, dict[str, dict[str, Any]]]:
    return {
        "train": {
            "HAMLET_HAMLET": {"snippets": [b"To be, or not to be.", b"", b"Words, words, words."]},
            "HAMLET_GHOST": {"snippets": ["Adieu, adieu, cœur.".encode()]},
        },
        "test": {"HAMLET_GHOST": {"snippets": [b"Remember me."]}},
    }


def stackoverflow() -> dict[str, dict[str, dict[str, Any]]]:
    def user(*posts: tuple[bytes, bytes, bytes]) -> dict[str, Any]:
        tokens, title, tags = (list(column) for column in zip(*posts, strict=True))
        return {
            "creation_date": [b"2010-01-01"] * len(posts),
            "score": np.arange(len(posts)),
            "tags": tags,
            "title": title,
            "tokens": tokens,
            "type": [b"question"] * len(posts),
        }

    return {
        "train": {
            "00000002": user((b"how to sort a list", b"sort list", b"python|sorting"), (b"a", b"", b"java")),
            "00000001": user((b"why unheard ?", b"why ?", b"c++|unheard")),
        },
        "test": {"00000009": user((b"to a list", b"list", b"sorting"))},
        "heldout": {"00000005": user((b"?", b"?", b"python"))},
    }


WORDS = "a 90\nto 80\nlist 70\nhow 60\nsort 50\nwhy 40\n? 30\n"
TAG_COUNTS = {"java": 5, "python": 9, "sorting": 5, "c++": 7}  # so python, c++, java, sorting


def write_counts(directory: Path) -> None:
    (directory / "stackoverflow.word_count").write_text(WORDS)
    (directory / "stackoverflow.tag_count").write_text(json.dumps(TAG_COUNTS))


# --- TFF's HDF5 -------------------------------------------------------------------------------------------


def write_hdf5(directory: Path, stem: str, data: Data) -> list[Path]:
    """Write stem_train.h5 and so on, with a group /examples/<client> and one dataset per field."""
    paths = []
    for split, clients in data.items():
        paths.append(directory / f"{stem}_{'held_out' if split == 'heldout' else split}.h5")
        with h5py.File(paths[-1], "w") as file:
            examples = file.create_group("examples")
            for client, fields in clients.items():
                group = examples.create_group(client)
                for field, values in fields.items():
                    if isinstance(values, list):
                        group.create_dataset(field, data=values, dtype=h5py.string_dtype())
                    else:
                        group.create_dataset(field, data=values, compression="gzip")
    return paths


# --- TFF's SQLite, with tf.train.Example by the wire format -----------------------------------------------


def varint(number: int) -> bytes:
    """Encode seven bits per byte, lowest first, with the top bit set on all but the last byte."""
    number %= 1 << 64
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field: the tag is the number shifted by three with wire type 2."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(value: Any) -> bytes:
    """A Feature: bytes_list = 1, float_list = 2, int64_list = 3, each with values in field 1."""
    if isinstance(value, bytes):
        return field(1, field(1, value))
    values = np.ravel(value)
    if values.dtype.kind == "f":
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values.tolist())))
    return field(3, field(1, b"".join(varint(v) for v in values.tolist())))


def example(values: Fields) -> bytes:
    """An Example: features = 1, in it map entries = 1 of key = 1 and value = 2."""
    entries = (field(1, field(1, name.encode()) + field(2, feature(v))) for name, v in values.items())
    return field(1, b"".join(entries))


def write_sqlite(path: Path, data: Data, names: Mapping[str, str] | None = None) -> Path:
    """Write the tables and indexes of TFF. `names` renames splits."""
    with sqlite3.connect(path) as db:
        db.executescript(
            """CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL,
                                      serialized_example_proto BLOB NOT NULL);
               CREATE INDEX idx_examples_client_id ON examples (client_id);
               CREATE INDEX idx_examples_client_id_split ON examples (split_name, client_id);
               CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL,
                                             num_examples INTEGER NOT NULL);
               CREATE INDEX idx_metadata_client_id ON client_metadata (client_id);"""
        )
        for split, clients in data.items():
            name = (names or {}).get(split, split)
            for client, fields in clients.items():
                n = len(next(iter(fields.values())))
                for i in range(n):
                    blob = example({field: values[i] for field, values in fields.items()})
                    db.execute("INSERT INTO examples VALUES (?, ?, ?)", (name, client, blob))
                db.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (client, name, n))
    db.close()
    return path


def write_lzma(path: Path, to: Path) -> Path:
    """Compress into the .lzma or .xz container, depending on the suffix."""
    container = lzma.FORMAT_XZ if to.suffix == ".xz" else lzma.FORMAT_ALONE
    to.write_bytes(lzma.compress(path.read_bytes(), container))
    return to


# --- LEAF's JSON ------------------------------------------------------------------------------------------


def write_leaf(
    directory: Path, name: str, split: str, users: Mapping[str, tuple[list[Any], list[Any]]]
) -> Path:
    """Write <split>/<name>_niid_0_keep_0_<split>_9.json."""
    path = directory / split / f"{name}_niid_0_keep_0_{split}_9.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))
    return path


def write_femnist(directory: Path, data: Data) -> Path:
    for split, clients in data.items():
        users = {
            client: (
                [[float(p) for p in image.ravel()] for image in fields["pixels"].astype(np.float64)],
                [int(y) for y in fields["label"]],
            )
            for client, fields in clients.items()
        }
        write_leaf(directory, "all_data_0", split, users)
    return directory


def windows(text: str, length: int = 80) -> tuple[list[str], list[str]]:
    """Cut a text as LEAF does: every window of `length` characters, and the next character."""
    starts = range(len(text) - length)
    return [text[i : i + length] for i in starts], [text[i + length] for i in starts]


# --- the official CIFAR binaries --------------------------------------------------------------------------


def record(labels: Sequence[int], image: np.ndarray) -> bytes:
    """Labels, then the red, green and blue planes of a (32, 32, 3) image."""
    return bytes(labels) + b"".join(image[:, :, channel].tobytes() for channel in range(3))


def write_cifar(directory: Path, version: int, per_file: int, seed: int = 3) -> dict[str, Any]:
    """Write the official files and return the labels and images of each split."""
    draw = np.random.default_rng(seed)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    truth: dict[str, Any] = {"train": [], "test": []}
    for name in names if version == 10 else ["train.bin", "test.bin"]:
        content = b""
        for _ in range(per_file):
            image = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
            fine = int(draw.integers(0, version))
            truth["test" if "test" in name else "train"].append((fine, image))
            content += record([fine] if version == 10 else [fine // 5, fine], image)
        (directory / name).write_bytes(content)
    return truth


# --- archives ---------------------------------------------------------------------------------------------


def write_tar(path: Path, members: Sequence[Path], prefix: str = "") -> Path:
    with tarfile.open(path, "w:" + path.suffix.lstrip(".").replace("tar", "")) as archive:
        for member in members:
            archive.add(member, prefix + member.name)
    return path


# --- EMNIST in each format; the result is the path to import -----------------------------------------------


def hdf5_directory(d: Path) -> Path:
    write_hdf5(d, "fed_emnist", emnist())
    return d


def hdf5_file(d: Path) -> Path:
    return write_hdf5(d, "fed_emnist", emnist())[1]


def tar_bz2(d: Path) -> Path:
    members = write_hdf5(d, "fed_emnist", emnist())
    archive = write_tar(d / "fed_emnist.tar.bz2", members)
    for member in members:
        member.unlink()
    return archive


def directory_of_archives(d: Path) -> Path:
    (d / "unrelated.gz").write_bytes(b"\x1f\x8bnot opened")
    return tar_bz2(d).parent


def zip_file(d: Path) -> Path:
    with zipfile.ZipFile(d / "emnist.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for member in write_hdf5(d, "fed_emnist", emnist()):
            archive.write(member, f"data/{member.name}")
            member.unlink()
    return d / "emnist.zip"


def sqlite_all(d: Path) -> Path:
    return write_sqlite(d / "emnist.sqlite", emnist(), {"train": "all_train", "test": "all_test"})


def sqlite_lzma(d: Path) -> Path:
    return write_lzma(sqlite_all(d), d / "emnist_all.sqlite.lzma")


def sqlite_xz(d: Path) -> Path:
    return write_lzma(sqlite_all(d), d / "emnist_all.sqlite.xz")


def leaf_directory(d: Path) -> Path:
    return write_femnist(d, emnist())
