"""Select the files of a path that make up a dataset."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from fedopt.data.importing import find_files
from fedopt.data.importing.datasets import DATASETS, ImportOptions
from fedopt.data.readers import archives, cifar, hdf5, leaf, sqlite
from fedopt.data.readers.base import (
    FileSet,
    SourceFile,
    data_error,
    path_without_split,
    split_from_name,
)
from fedopt.data.readers.limits import Budget
from fedopt.errors import DataError, UserError
from fedopt.files import Log, no_log

REQUIRED_SPLITS = ("train", "test")
VOCABULARIES = {"word_count": "words", "tag_count": "tags"}
Unreadable = list[tuple[SourceFile, UserError]]


def select_files(
    name: str,
    paths: Sequence[Path],
    options: ImportOptions,
    partition: cifar.Partition,
    scratch: Path,
    budget: Budget,
    log: Log = no_log,
) -> tuple[FileSet, list[SourceFile]]:
    """Return the file set at `paths` that is dataset `name`, and all files that were examined."""
    unpacked = scratch / "unpacked"
    files = find_files.list_files(paths, unpacked, budget, log)
    for path in _other_splits(paths, files):
        files += find_files.unpack_archive(find_files.source_file(path, budget), unpacked, log)
    file_sets, unreadable = _find_file_sets(name, files, options, partition, scratch)
    if not any(_is_complete(file_set) for file_set in file_sets):
        # The archives in a directory are unpacked only if there is no complete set without them.
        closed = [file for file in files if file.format in archives.FORMATS and _names_dataset(name, file)]
        if closed:
            files += [inner for file in closed for inner in find_files.unpack_archive(file, unpacked, log)]
            file_sets, unreadable = _find_file_sets(name, files, options, partition, scratch)
    selected = _select_one(name, paths, files, file_sets, unreadable, options)
    sets = {path_without_split(file.location) for file in selected.files}
    for file, error in unreadable:
        if path_without_split(file.location) in sets:
            raise error
    return selected, files


def find_vocabularies(
    selected: FileSet,
    files: Sequence[SourceFile],
    paths: Sequence[Path],
    scratch: Path,
    budget: Budget,
    log: Log = no_log,
) -> list[SourceFile]:
    """Return Stack Overflow's word_count and tag_count: among `files`, beside them, or in archives there."""
    folders = dict.fromkeys(path.parent for path in paths if path.is_file())
    neighbours = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    vocabularies = []
    for title, content in VOCABULARIES.items():
        matches = [file for file in files if title in file.path.name]
        matches += [find_files.source_file(path, budget) for path in neighbours if title in path.name]
        if not matches:
            raise DataError(
                f"stackoverflow.{title} not found beside {selected.label}; it defines the ids of {content}: "
                f"put stackoverflow.{title}.tar.bz2 or its content there",
                path=f"stackoverflow.{title}",
            )
        plain = [file for file in matches if file.format not in archives.FORMATS]
        vocabularies.append((plain or find_files.unpack_archive(matches[0], scratch / "unpacked", log))[0])
    return vocabularies


def _find_file_sets(
    name: str,
    files: Sequence[SourceFile],
    options: ImportOptions,
    partition: cifar.Partition,
    scratch: Path,
) -> tuple[list[FileSet], Unreadable]:
    """Return the file sets that could be the dataset, and the files that could not be opened."""
    unreadable: Unreadable = []
    for file in files:
        if file.format == find_files.UNREADABLE:
            unreadable.append((file, data_error(file, "cannot be read; check its permissions")))
    if name == "own":
        from fedopt.data.readers import table  # imports pyarrow, which takes 0.2 s

        if options.columns is None:
            raise UserError("own data needs --client-column and --label-column")
        for file, error in unreadable:
            if file.path.suffix.lower() in table.SUFFIXES:
                raise error
        return table.find_file_sets(files, options.columns, scratch / "table"), unreadable
    file_sets: list[FileSet] = []
    fields = DATASETS[name].fields
    if fields:
        hdf5_files = _readable(files, "hdf5", hdf5.field_names, unreadable)
        sqlite_files = _readable(files, "sqlite", sqlite.count_clients, unreadable)
        file_sets += hdf5.find_file_sets(hdf5_files, fields)
        file_sets += sqlite.find_file_sets(sqlite_files, fields, _sqlite_split_names(options))
    if name in ("emnist", "shakespeare"):
        file_sets += leaf.find_file_sets(files, name)
    if name in cifar.LAYOUTS:
        file_sets += cifar.find_file_sets(files, name, partition)
    return file_sets, unreadable


def _readable(
    files: Sequence[SourceFile], format: str, probe: Callable[[SourceFile], object], unreadable: Unreadable
) -> list[SourceFile]:
    """Return the files of a format that can be opened. Add the others to `unreadable`."""
    readable = []
    for file in files:
        if file.format == format:
            try:
                probe(file)
                readable.append(file)
            except UserError as error:
                unreadable.append((file, error))
    return readable


def _sqlite_split_names(options: ImportOptions) -> dict[str, tuple[str, ...]]:
    version = "digits_only" if options.digits else "all"
    return {
        "train": (f"{version}_train", "train"),
        "test": (f"{version}_test", "test"),
        "heldout": ("heldout", "held_out"),
    }


def _select_one(
    name: str,
    paths: Sequence[Path],
    files: Sequence[SourceFile],
    file_sets: Sequence[FileSet],
    unreadable: Unreadable,
    options: ImportOptions,
) -> FileSet:
    complete = [file_set for file_set in file_sets if _is_complete(file_set)]
    if len(complete) > 1:  # both versions of EMNIST in one directory
        preferred = [s for s in complete if ("digits" in Path(s.label).name) == options.digits]
        complete = preferred or complete
    if len(complete) == 1:
        return complete[0]
    where = ", ".join(str(path) for path in paths)
    if complete:
        labels = ", ".join(file_set.label for file_set in complete)
        message = f"several file sets in {where} could be {name}: {labels}; name one of these files"
        raise DataError(message, path=paths[0])
    if unreadable:
        raise unreadable[0][1]
    if file_sets:
        present = sorted(file_sets[0].splits)
        missing = [split for split in REQUIRED_SPLITS if split not in present]
        raise DataError(
            f"{file_sets[0].label}: split {missing[0]!r} not found (only {', '.join(present)}); {name} needs "
            "train and test: put the missing file beside it, or give the directory that holds both",
            path=file_sets[0].files[0].origin,
        )
    raise DataError(f"no {name} data in {where}: {_explain_no_match(name, files)}", path=paths[0])


def _explain_no_match(name: str, files: Sequence[SourceFile]) -> str:
    formats = Counter(file.format for file in files)
    if formats["pickle"]:
        version = "binary version, cifar-*-binary.tar.gz" if name in cifar.LAYOUTS else DATASETS[name].formats
        return f"pickled files are never opened, because they can run code; get the {version}"
    if name == "own" and len(files) == 1 and formats["empty"]:
        return "the file is empty"
    present = ", ".join(f"{count} {format}" for format, count in sorted(formats.items())) or "nothing"
    if name == "own":
        return f"expected {DATASETS[name].formats}, as UTF-8 text without null bytes; found: {present}"
    return f"expected {DATASETS[name].formats}, with train and test in the file names; found: {present}"


def _is_complete(file_set: FileSet) -> bool:
    return all(split in file_set.splits for split in REQUIRED_SPLITS)


def _other_splits(paths: Sequence[Path], files: Sequence[SourceFile]) -> list[Path]:
    """Return the other splits of individually named files: beside them, or train/FILE with test/FILE."""
    known = {file.origin.absolute() for file in files}
    others = []
    for path in paths:
        if path.is_file():
            folder = path.absolute().parent
            neighbours = [*folder.iterdir(), *folder.parent.glob(f"*/{glob.escape(path.name)}")]
            for other in sorted(set(neighbours) - known):
                if _is_other_split(other, path.absolute()) and other.is_file():
                    known.add(other)
                    others.append(other)
    return others


def _is_other_split(other: Path, path: Path) -> bool:
    if other.suffix == path.suffix == ".bin" and other.parent == path.parent:
        return True  # CIFAR's batches
    return split_from_name(other) is not None and path_without_split(other) == path_without_split(path)


def _names_dataset(name: str, file: SourceFile) -> bool:
    """Whether an archive in a directory may hold the dataset, according to its name."""
    if any(word in file.path.name.lower() for word in DATASETS[name].archive_names):
        return True
    return file.format in archives.COMPRESSED and split_from_name(file.path) is not None
