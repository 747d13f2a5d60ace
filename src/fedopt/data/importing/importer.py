"""Import a dataset: select its files, encode each client, and write the store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt import rng
from fedopt.data import partition
from fedopt.data.importing import encode
from fedopt.data.importing.datasets import DATASETS, ImportOptions
from fedopt.data.importing.find_files import fingerprint
from fedopt.data.importing.select_files import find_vocabularies, select_files
from fedopt.data.readers.base import (
    FileSet,
    RawClient,
    SourceFile,
    SplitSource,
    check_client_id,
    data_error,
)
from fedopt.data.readers.cifar import Partition
from fedopt.data.readers.limits import Budget
from fedopt.data.store import Store, is_store, open_store
from fedopt.data.store.columns import MANIFEST, ClientColumns
from fedopt.data.store.locations import store_directory
from fedopt.data.store.manifest import read_manifest
from fedopt.data.store.other_files import keep_other_files
from fedopt.data.store.writer import write_files
from fedopt.errors import DataError, FedoptError, unknown
from fedopt.files import Log, no_log, replace_directory, temporary_directory

Encoder = Callable[[RawClient], ClientColumns]
OnProgress = Callable[[str, int, int | None], None]  # what, number done, total if known

# Recorded options and their names on the command line.
OPTION_NAMES = {
    "seed": "--seed",
    "clients": "--train-clients and --test-clients",
    "digits": "--digits",
    "test_share": "--test-fraction",
    "split": "--split-column",
}
ALPHA, BETA = 0.1, 10.0  # the paper's Dirichlet parameters: labels, and fine labels within a coarse label


@dataclass(frozen=True)
class ImportResult:
    """The store, and whether it was written now. It is not if the same files were imported before."""

    store: Store
    is_new: bool


def no_progress(what: str, done: int, total: int | None) -> None:
    """Discard a progress report."""


def import_dataset(
    name: str,
    paths: Sequence[Path],
    to: Path | None = None,
    options: ImportOptions | None = None,
    log: Log = no_log,
    on_progress: OnProgress = no_progress,
) -> ImportResult:
    """Import files, directories or archives as dataset `name`. The store goes to `to` or a default place."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    options = options or ImportOptions()
    target = (to or store_directory(name)).resolve()
    _check_target(target)
    with temporary_directory(target, log) as scratch:
        budget = Budget(options.limit_factor)
        partition = _cifar_partition(name, options, log)
        selected, files = select_files(name, paths, options, partition, scratch, budget, log)
        vocabularies: list[SourceFile] = []
        if name == "stackoverflow":
            vocabularies = find_vocabularies(selected, files, paths, scratch, budget, log)
        origins = {file.origin: file for file in [*selected.files, *vocabularies]}
        source = [fingerprint(file) for file in origins.values()]
        if name == "own" and len({item["sha256"] for item in source}) < len(source):
            raise DataError(f"{paths[0]} holds a table twice; name the file to import", path=paths[0])
        notes = {"format": selected.format, "options": recorded_options(name, options), **selected.notes}
        if is_store(target):
            difference = _compare_imports(target, name, source, notes)
            existing = _open_existing(target)
            if existing is not None and not difference and existing.manifest["checksum"]:
                return ImportResult(existing, is_new=False)
            if difference and not options.replace:
                message = f"{target} holds {difference}; add --replace or choose another --to"
                raise DataError(message, path=target)
        new = scratch / "store"
        empty = _EmptyClients(options.skip_empty)
        _write_store(name, new, target, selected, vocabularies, source, notes, empty, on_progress)
        if empty.count:
            clients = "client" if empty.count == 1 else "clients"
            log(f"left out {empty.count:,} {clients} without examples")
        keep_other_files(target, new)
        replace_directory(target, new)
    return ImportResult(open_store(target), is_new=True)


def _write_store(
    name: str,
    directory: Path,
    target: Path,
    selected: FileSet,
    vocabularies: Sequence[SourceFile],
    source: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Any],
    empty: _EmptyClients,
    on_progress: OnProgress,
) -> None:
    def write(encoder: Encoder, texts: Mapping[str, str], **more_notes: Any) -> None:
        splits = {
            split: _encode_clients(split, selected.splits[split], encoder, empty, on_progress)
            for split in ("train", "test", "heldout")
            if split in selected.splits
        }
        write_files(directory, target, name, source, splits, texts, {**notes, **more_notes})

    if name == "stackoverflow":
        words, tags = encode.read_words(vocabularies[0]), encode.read_tags(vocabularies[1])
        texts = {"vocabulary.txt": _join_lines(words), "tags.txt": _join_lines(tags)}
        write(encode.StackOverflow(words, tags), texts, words=len(words), tags=len(tags))
    elif name == "emnist":
        try:
            write(encode.emnist, {}, pixels="k stands for k/255, the background is 255")
        except encode.NotEightBit:
            shutil.rmtree(directory)
            write(encode.emnist_float, {}, pixels="as in the file, which has more than 256 levels")
    else:
        write(ENCODERS[name], {})


ENCODERS: dict[str, Encoder] = {
    "cifar10": encode.cifar10,
    "cifar100": encode.cifar100,
    "shakespeare": encode.shakespeare,
    "own": encode.own,
}


class _EmptyClients:
    """Counts clients without examples, or rejects them."""

    def __init__(self, skip: bool) -> None:
        self._skip, self.count = skip, 0

    def skips(self, client: RawClient) -> bool:
        """Return whether a client is left out."""
        if any(len(values) for values in client.fields.values()):
            return False
        if not self._skip:
            why = "has no examples; --skip-empty leaves out such clients"
            raise data_error(client.file, why, client=client.id)
        self.count += 1
        return True


def _encode_clients(
    split: str, source: SplitSource, encoder: Encoder, empty: _EmptyClients, on_progress: OnProgress
) -> Iterator[tuple[str, ClientColumns]]:
    seen: set[str] = set()
    for done, client in enumerate(source.clients(), start=1):
        check_client_id(client.file, client.id.encode(errors="replace"))
        if client.id in seen:
            raise data_error(client.file, f"occurs twice in split {split!r}", client=client.id)
        seen.add(client.id)
        if not empty.skips(client):
            yield client.id, encoder(client)
        on_progress(split, done, source.total)


def _cifar_partition(name: str, options: ImportOptions, log: Log) -> Partition:
    """Return the function that assigns the official CIFAR files to clients."""

    def assign(split: str, labels: dict[str, NDArray[np.uint8]]) -> Sequence[NDArray[np.int64]]:
        wanted = options.train_clients if split == "train" else options.test_clients
        fine = labels["label"].astype(np.int64)
        clients = min(wanted, len(fine))
        if clients < wanted:
            log(f"{split} has only {len(fine)} images, so {clients} clients instead of {wanted}")
        seed = options.seed if split == "train" else rng.key(options.seed, split) >> 96
        if name == "cifar10":
            return partition.dirichlet(fine, clients, ALPHA, seed)
        coarse = labels["coarse_label"].astype(np.int64)
        return partition.pachinko(fine, coarse, clients, ALPHA, BETA, seed)

    return assign


def recorded_options(name: str, options: ImportOptions) -> dict[str, Any]:
    """Return the options that affect the result, for the manifest."""
    if name in ("cifar10", "cifar100"):
        return {
            "partition": "dirichlet" if name == "cifar10" else "pachinko",
            "alpha": ALPHA,
            **({"beta": BETA} if name == "cifar100" else {}),
            "seed": options.seed,
            "clients": [options.train_clients, options.test_clients],
        }
    if name == "emnist":
        return {"digits": options.digits}
    if options.columns is not None:
        return options.columns.recorded()
    return {}


def _compare_imports(
    target: Path, name: str, source: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]
) -> str:
    """Describe how the store at `target` differs from a new import. Empty if it is the same import."""
    try:
        manifest = read_manifest(target / MANIFEST)
    except (OSError, ValueError, FedoptError):
        return f"data with a {MANIFEST} that cannot be read"
    before, after = (sorted(str(item["sha256"]) for item in files) for files in (manifest["source"], source))
    if manifest["name"] != name or before != after:
        return f"{manifest['name']} from other files"
    recorded = manifest["notes"]
    if recorded.get("options") != notes["options"]:
        return f"the same files imported with other options ({_describe_options(recorded, notes)})"
    if changed := [key for key in notes if recorded.get(key) != notes[key]]:
        old, new = (json.dumps(values.get(changed[0])) for values in (recorded, notes))
        return f"the same files imported in another way ({changed[0]} {old}, not {new})"
    return ""


def _describe_options(recorded: Mapping[str, Any], notes: Mapping[str, Any]) -> str:
    """Name the options of the command line that differ: those of the store, then those of this import."""
    before, after = recorded.get("options"), notes["options"]
    before = before if isinstance(before, dict) else {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(
        f"{OPTION_NAMES.get(name, name)} {_show(before.get(name))}, not {_show(after.get(name))}"
        for name in names
    )


def _show(value: object) -> str:
    """Return an option's value as it is written on the command line."""
    if value is None:
        return "unset"
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_target(target: Path) -> None:
    if target.exists() and not is_store(target) and (not target.is_dir() or any(target.iterdir())):
        message = f"{target} exists and is not imported data; choose another directory with --to"
        raise DataError(message, path=target)


def _open_existing(target: Path) -> Store | None:
    """Return the store at `target`, or None if it is damaged."""
    try:
        return open_store(target)
    except FedoptError:
        return None


def _join_lines(words: Sequence[bytes]) -> str:
    return "".join(word.decode() + "\n" for word in words)
