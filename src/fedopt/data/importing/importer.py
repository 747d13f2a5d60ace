"""Importing: the same steps for every dataset.

Gather the files, choose the set that is the dataset, turn its fields into columns client by client, and make
the store visible when all of it is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopt import rng
from fedopt.data.importing import encode, find_files
from fedopt.data.importing.datasets import DATASETS, Options
from fedopt.data.importing.select_files import choose, vocabularies
from fedopt.data.readers.base import Candidate, File, RawClient, SplitSource, bad
from fedopt.data.store import Store, is_store, open_store
from fedopt.data.store.columns import Columns
from fedopt.data.store.locations import store_directory
from fedopt.data.store.writer import write_files
from fedopt.errors import FedoptError, UserError, unknown
from fedopt.files import Log, no_log, replace_directory, temporary_directory

Encoder = Callable[[RawClient], Columns]
Tick = Callable[[str, int, int | None], None]  # split, clients so far, clients in all if known

ALPHA, BETA = 0.1, 10.0  # the paper's Dirichlet parameters: labels, and fine labels within a coarse one


@dataclass(frozen=True)
class Imported:
    """An import's result; `fresh` is false if the same files had been imported before."""

    store: Store
    fresh: bool


def no_tick(split: str, done: int, total: int | None) -> None:
    """Show no progress."""


def import_dataset(
    name: str,
    paths: Sequence[Path],
    to: Path | None = None,
    options: Options | None = None,
    log: Log = no_log,
    tick: Tick = no_tick,
) -> Imported:
    """Import files, directories or archives as dataset `name` into a store, `to` or the default one."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    options = options or Options()
    target = (to or store_directory(name)).resolve()
    _check_target(target)
    with temporary_directory(target, log) as scratch:
        chosen, files = choose(name, paths, options, _dealer(name, options, log), scratch, log)
        words = vocabularies(chosen, files, paths, scratch, log) if name == "stackoverflow" else []
        origins = dict.fromkeys(file.origin for file in [*chosen.files, *words])
        source = [find_files.fingerprint(path) for path in origins]
        notes = {"format": chosen.format, "options": told(name, options), **chosen.notes}
        before = _readable_store(target)
        if before is not None:
            if _same(before, name, source, notes):
                return Imported(before, fresh=False)
            if not options.replace:
                raise UserError(
                    f"{target} holds {before.name} from other files; add --replace or another --to"
                )
        _write(name, scratch / "store", target, chosen, words, source, notes, tick)
        replace_directory(target, scratch / "store")
    return Imported(open_store(target), fresh=True)


def _write(
    name: str,
    directory: Path,
    target: Path,
    chosen: Candidate,
    words: Sequence[File],
    source: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Any],
    tick: Tick,
) -> None:
    def write(encoder: Encoder, texts: Mapping[str, str], **more: Any) -> None:
        splits = {
            split: _encoded(split, chosen.splits[split], encoder, tick)
            for split in ("train", "test", "heldout")
            if split in chosen.splits
        }
        write_files(directory, target, name, source, splits, texts, {**notes, **more})

    if name == "stackoverflow":
        vocabulary, tags = encode.word_list(words[0]), encode.tag_list(words[1])
        texts = {"vocabulary.txt": _lines(vocabulary), "tags.txt": _lines(tags)}
        write(encode.StackOverflow(vocabulary, tags), texts, words=len(vocabulary), tags=len(tags))
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


def _encoded(split: str, source: SplitSource, encoder: Encoder, tick: Tick) -> Iterator[tuple[str, Columns]]:
    seen: set[str] = set()
    for done, client in enumerate(source.clients(), start=1):
        if client.id in seen:
            raise bad(client.file, f"comes twice in split {split!r}", client.id)
        seen.add(client.id)
        yield client.id, encoder(client)
        tick(split, done, source.total)


def _dealer(
    name: str, options: Options, log: Log
) -> Callable[[str, dict[str, NDArray[np.uint8]]], Sequence[NDArray[np.int64]]]:
    """How the official CIFAR files are dealt to clients; test clients get draws of their own."""

    def deal(split: str, labels: dict[str, NDArray[np.uint8]]) -> Sequence[NDArray[np.int64]]:
        from fedopt.data import partition

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

    return deal


def told(name: str, options: Options) -> dict[str, Any]:
    """The options that made a difference: another import with them is the same import."""
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
    if options.roles is not None:
        return {"test_share": options.roles.test_share, "seed": options.roles.seed}
    return {}


def _same(before: Store, name: str, source: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> bool:
    old = before.manifest
    return before.name == name and old["source"] == list(source) and notes.items() <= old["notes"].items()


def _check_target(target: Path) -> None:
    if target.exists() and not is_store(target) and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not imported data; choose another directory with --to")


def _readable_store(target: Path) -> Store | None:
    """What was imported here before; a damaged store counts as nothing and is replaced."""
    try:
        return open_store(target) if is_store(target) else None
    except FedoptError:
        return None


def _lines(words: Sequence[bytes]) -> str:
    return "".join(word.decode() + "\n" for word in words)
