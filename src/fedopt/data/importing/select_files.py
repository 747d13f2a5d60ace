"""Choosing: which of the files that a path holds are the dataset, and which splits they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from fedopt.data.importing import find_files
from fedopt.data.importing.datasets import DATASETS, Options
from fedopt.data.readers import archives, cifar, hdf5, leaf, sqlite, tabular
from fedopt.data.readers.base import Candidate, File, family_of
from fedopt.errors import UserError
from fedopt.files import Log, no_log

REQUIRED = ("train", "test")
VOCABULARIES = ("word_count", "tag_count")


def choose(
    name: str, paths: Sequence[Path], options: Options, deal: cifar.Deal, scratch: Path, log: Log = no_log
) -> tuple[Candidate, list[File]]:
    """The one set of files at `paths` that is dataset `name`, and all files that were looked at."""
    unpacked = scratch / "unpacked"
    files = find_files.gather(paths, unpacked, log)
    files += _siblings(paths, files)
    found, unreadable = _candidates(name, files, options, deal, scratch)
    if not any(_complete(candidate) for candidate in found):
        # A directory of downloads: archives are opened only if nothing else is there.
        shut = [file for file in files if file.kind in archives.KINDS and _speaks_of(name, file)]
        if shut:
            files += [inner for file in shut for inner in find_files.expand(file, unpacked, log)]
            found, unreadable = _candidates(name, files, options, deal, scratch)
    chosen = _only(name, paths, files, found, unreadable, options)
    families = {family_of(file.path) for file in chosen.files}
    for file, error in unreadable:
        if family_of(file.path) in families:
            raise error
    return chosen, files


def vocabularies(
    chosen: Candidate, files: Sequence[File], paths: Sequence[Path], scratch: Path, log: Log = no_log
) -> list[File]:
    """Stack Overflow's word_count and tag_count: among the files, beside them, or in archives there."""
    beside = dict.fromkeys(path.parent for path in paths if path.is_file())
    others = [path for directory in beside for path in sorted(directory.iterdir()) if path.is_file()]
    found = []
    for title in VOCABULARIES:
        near = [file for file in files if title in file.path.name]
        near += [find_files.plain(path) for path in others if title in path.name]
        if not near:
            what = "words" if title == "word_count" else "tags"
            raise UserError(
                f"stackoverflow.{title} not found beside {chosen.label}, and the ids of {what} come from it; "
                f"put stackoverflow.{title}.tar.bz2 or its content there"
            )
        plain = [file for file in near if file.kind not in archives.KINDS]
        found.append((plain or find_files.expand(near[0], scratch / "unpacked", log))[0])
    return found


def _candidates(
    name: str, files: Sequence[File], options: Options, deal: cifar.Deal, scratch: Path
) -> tuple[list[Candidate], list[tuple[File, UserError]]]:
    """Sets of files that could be the dataset, and files that could not be opened."""
    if name == "own":
        if options.roles is None:
            raise UserError("own data needs --client-column and --label-column")
        return tabular.candidates(files, options.roles, scratch / "spool"), []
    unreadable: list[tuple[File, UserError]] = []
    found: list[Candidate] = []
    fields = DATASETS[name].fields
    if fields:
        trees = _readable(files, "hdf5", hdf5.field_names, unreadable)
        tables = _readable(files, "sqlite", sqlite.split_counts, unreadable)
        found += hdf5.candidates(trees, fields)
        found += sqlite.candidates(tables, fields, _split_names(options))
    if name in ("emnist", "shakespeare"):
        found += leaf.candidates([file for file in files if file.kind == "json"], name)
    if name in cifar.LAYOUTS:
        found += cifar.candidates(files, name, deal)
    return found, unreadable


def _readable(
    files: Sequence[File],
    kind: str,
    probe: Callable[[File], object],
    unreadable: list[tuple[File, UserError]],
) -> list[File]:
    """Files of a kind that open; a damaged one is reported only if it is needed."""
    good = []
    for file in files:
        if file.kind == kind:
            try:
                probe(file)
                good.append(file)
            except UserError as error:
                unreadable.append((file, error))
    return good


def _split_names(options: Options) -> dict[str, tuple[str, ...]]:
    kind = "digits_only" if options.digits else "all"
    return {
        "train": (f"{kind}_train", "train"),
        "test": (f"{kind}_test", "test"),
        "heldout": ("heldout", "held_out"),
    }


def _only(
    name: str,
    paths: Sequence[Path],
    files: Sequence[File],
    found: Sequence[Candidate],
    unreadable: Sequence[tuple[File, UserError]],
    options: Options,
) -> Candidate:
    complete = [candidate for candidate in found if _complete(candidate)]
    if len(complete) > 1:  # both versions of EMNIST in one directory
        complete = [c for c in complete if ("digits" in Path(c.label).name) == options.digits] or complete
    if len(complete) == 1:
        return complete[0]
    where = ", ".join(str(path) for path in paths)
    if complete:
        labels = ", ".join(candidate.label for candidate in complete)
        raise UserError(f"several sets in {where} could be {name}: {labels}; name one of these files")
    if unreadable:
        raise unreadable[0][1]
    if found:
        present = sorted(found[0].splits)
        missing = [split for split in REQUIRED if split not in present]
        raise UserError(
            f"{found[0].label}: split {missing[0]!r} not found (only {', '.join(present)}); {name} needs "
            "train and test: put the missing file beside it, or give the directory that holds both"
        )
    raise UserError(f"no {name} data in {where}: {_why_nothing(name, files)}")


def _why_nothing(name: str, files: Sequence[File]) -> str:
    kinds = Counter(file.kind for file in files)
    if kinds["pickle"] and name in cifar.LAYOUTS:
        return "pickled files are never opened; get the binary version, cifar-*-binary.tar.gz"
    held = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "nothing"
    return f"expected {DATASETS[name].formats}, with train and test in the names; found: {held}"


def _complete(candidate: Candidate) -> bool:
    return all(split in candidate.splits for split in REQUIRED)


def _siblings(paths: Sequence[Path], files: Sequence[File]) -> list[File]:
    """The other splits of files that were named one by one: they lie beside them."""
    known = {file.path.absolute() for file in files}
    found = []
    for path in paths:
        if path.is_file() and find_files.recognise(path) not in archives.KINDS:
            for other in sorted(path.parent.iterdir()):
                related = family_of(other) == family_of(path) or other.suffix == path.suffix == ".bin"
                if related and other.is_file() and other.absolute() not in known:
                    known.add(other.absolute())
                    found.append(find_files.plain(other))
    return found


def _speaks_of(name: str, file: File) -> bool:
    return any(word in file.path.name.lower() for word in DATASETS[name].words)
