"""Small files that declare much data, or refer to other files, are rejected with little memory and time."""

from __future__ import annotations

import gzip
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import hostile
import publicfiles as files
import pytest
from peak import peak_memory
from rejected import rejected_import

from fedopt.data.importing import find_files
from fedopt.data.importing.datasets import ImportOptions
from fedopt.data.importing.importer import import_dataset
from fedopt.data.readers.base import TableColumns
from fedopt.data.readers.limits import Budget

Make = Callable[[Path], Path]
CASES: dict[str, tuple[str, Make]] = {
    "HDF5 datasets without storage": ("emnist", hostile.unallocated_hdf5),
    "HDF5 rows that share one text": ("shakespeare", hostile.repeated_text_hdf5),
    "HDF5 external link": ("emnist", hostile.linked_examples("external")),
    "HDF5 soft link": ("emnist", hostile.linked_examples("soft")),
    "tar with a long name": ("emnist", hostile.long_name_tar),
    "tar with a sparse map": ("emnist", hostile.sparse_map_tar),
    "LEAF of empty lists": ("emnist", hostile.empty_lists_leaf),
    "tar with a skipped member": ("emnist", hostile.skipped_member_tar),
    "SQLite generated column": ("emnist", hostile.generated_column),
    "Parquet with many rows": ("own", hostile.many_rows_parquet),
    "Parquet with a long text": ("own", hostile.long_text_parquet),
    "Parquet with a repeated text": ("own", hostile.repeated_text_parquet),
    "CSV with many columns": ("own", hostile.many_columns_csv),
    "archives in an archive": ("emnist", hostile.nested_zip),
    "sparse file": ("cifar100", hostile.sparse_cifar),
}
TABLE = TableColumns("client", "label")


@pytest.mark.parametrize(("name", "make"), CASES.values(), ids=CASES)
def test_hostile_file_is_rejected_with_little_memory(places, name: str, make: Make) -> None:
    path = make(places.source)
    start = time.monotonic()
    with peak_memory() as peak:
        error = rejected_import(name, path, places.to, columns=TABLE if name == "own" else None)
    assert error.path is not None and error.path.parent == places.source
    assert peak.added < 400 << 20
    assert time.monotonic() - start < 20


def test_limit_factor_raises_the_limits(places) -> None:
    """Three times 60 MB of zeros are above the limit of 64 MB, and below ten times that limit."""
    path = hostile.nested_zip(places.source)
    message = "if you trust the files, raise the limits with --limit-factor 10"
    assert message in str(rejected_import("emnist", path, places.to))
    error = rejected_import("emnist", path, places.to, limit_factor=10)
    assert "--limit-factor" not in str(error)  # the files are unpacked, and are not EMNIST


def test_texts_in_compressed_chunks_are_read(places) -> None:
    path = hostile.repeated_text_hdf5(places.source, chunked=True)
    store = import_dataset("shakespeare", [path], places.to / "store").store
    assert store.manifest["splits"]["train"] == {
        "clients": 1,
        "examples": 4096,
        "columns": {"snippets": {"dtype": "|u1", "shape": [], "ragged": True}},
    }


@pytest.mark.parametrize(
    "make", [files.hdf5_directory, files.sqlite_all, files.leaf_directory, files.tar_bz2]
)
def test_import_that_takes_too_long_is_stopped(places, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedopt.data.readers.limits.MIN_SECONDS", -1e9)
    error = rejected_import("emnist", make(places.source), places.to)
    assert "seconds to read" in str(error) and "--limit-factor" in str(error)


def test_limits_grow_with_the_files(tmp_path: Path) -> None:
    """100 times the size, at least 64 MB; 100 kB per second after two minutes."""
    budget = Budget()
    assert (budget.bytes, budget.array_bytes, budget.seconds) == (64 << 20, 64 << 20, 120)
    (tmp_path / "file").write_bytes(b"x" * 10_000_000)
    budget.add_file((tmp_path / "file").stat())
    assert (budget.bytes, budget.array_bytes, budget.seconds) == (1_000_000_000, 128 << 20, 220)
    assert budget.reserve(1_000_000_000) == "" and "1,000,000,000 bytes" in budget.reserve(1)


def test_real_files_stay_below_the_limits(places) -> None:
    """A compressed archive of constant images, which compress best."""
    data = files.emnist()
    for clients in data.values():
        for fields in clients.values():
            fields["pixels"][:] = 1.0
    members = files.write_hdf5(places.source, "fed_emnist", data)
    path = files.write_tar(places.source / "fed_emnist.tar.bz2", members)
    assert import_dataset("emnist", [path], places.to / "store", ImportOptions()).is_new


def test_long_name_header_is_not_read(places) -> None:
    path = hostile.long_name_tar(places.source, 1 << 20)
    assert "a header of 1,049,088 bytes" in str(rejected_import("emnist", path, places.to))


def test_headers_of_a_tar_are_counted(places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers have 6 MB. The limit is 100 times the size of the archive, which is below 40 kB."""
    monkeypatch.setattr("fedopt.data.readers.limits.MIN_BYTES", 1 << 20)
    path = hostile.many_headers_tar(places.source)
    assert path.stat().st_size < 40_000
    assert "bytes of data, far more than" in str(rejected_import("emnist", path, places.to))


make_small = partial(hostile.many_rows_parquet, rows=1 << 20)


def test_parquet_within_the_limits_is_imported(places) -> None:
    path = make_small(places.source)
    store = import_dataset("own", [path], places.to / "store", ImportOptions(columns=TABLE)).store
    assert sum(split["examples"] for split in store.manifest["splits"].values()) == 1 << 20


def test_hdf5_field_that_is_not_numbers_or_texts_is_not_read(places) -> None:
    error = rejected_import("shakespeare", hostile.compound_text_hdf5(places.source), places.to)
    assert error.client == "a" and "neither numbers nor texts" in str(error)


def test_column_count_of_a_parquet_file_is_limited(places) -> None:
    path = hostile.many_columns_parquet(places.source)
    assert "50,001 columns" in str(rejected_import("own", path, places.to, columns=TABLE))


def test_hdf5_chunk_counts_as_a_whole(places) -> None:
    """50,000 images of 784 numbers of 4 bytes, of which the dataset has one."""
    error = rejected_import("emnist", hostile.large_chunk_hdf5(places.source), places.to)
    assert "156,800,000 bytes" in str(error) and error.client is not None


def test_number_of_nested_archives_does_not_slow_down_unpacking(places) -> None:
    """The directory of each archive is chosen without reading those of the others."""
    path = places.source / "emnist.zip"
    content = gzip.compress(b"x")
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(f"{number}.gz", content)
    with patch.object(Path, "iterdir", side_effect=AssertionError):
        members = find_files.list_files([path], places.to / "unpacked", Budget())
    assert len(members) == 300
