"""LEAF's JSON files: windows are joined, and invalid files are rejected with file and user."""

from __future__ import annotations

from pathlib import Path

import publicfiles as files
import pytest
from damagedfiles import Make, edit_json, replace_bytes
from rejected import rejected_import

from fedopt.data.importing.importer import import_dataset
from fedopt.data.store import Ragged

CASES: dict[str, tuple[Make, str | None]] = {
    "truncated JSON": (replace_bytes(b'"user_data"', b'"user_da'), None),
    "JSON that is not UTF-8": (replace_bytes(b"f10", b"f\xff0"), None),
    "user without data": (edit_json(lambda c: c["user_data"].pop("f2")), "f2"),
    "user without samples": (edit_json(lambda c: c["user_data"].update(f2={"x": [], "y": []})), "f2"),
    "x and y of different lengths": (edit_json(lambda c: c["user_data"]["f1"]["y"].pop()), "f1"),
    "wrong num_samples": (edit_json(lambda c: c["num_samples"].__setitem__(2, 9)), "f1"),
    "missing pixel": (edit_json(lambda c: c["user_data"]["f1"]["x"][0].pop()), "f1"),
    "NaN": (edit_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, float("nan"))), "f1"),
    "number that no float holds": (
        edit_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, 10**400)),
        "f1",
    ),
    "text instead of a number": (
        edit_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, "a")),
        "f1",
    ),
    "truth value instead of a label": (
        edit_json(lambda c: c["user_data"]["f1"]["y"].__setitem__(0, True)),
        "f1",
    ),
    "truth value instead of a number": (
        edit_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, True)),
        "f1",
    ),
    "number as text": (edit_json(lambda c: c["user_data"]["f1"]["x"][0].__setitem__(0, "0.5")), "f1"),
    "label beyond 64 bits": (edit_json(lambda c: c["user_data"]["f1"]["y"].__setitem__(0, 2**64)), "f1"),
    "two data of one user": (
        replace_bytes(b'"user_data": {', b'"user_data": {"f1": {"x": [], "y": []}, '),
        None,
    ),
    "user twice": (edit_json(lambda c: (c["users"].append("f1"), c["num_samples"].append(3))), "f1"),
    "user that is not a name": (edit_json(lambda c: c["users"].__setitem__(0, [1])), None),
    "missing key": (edit_json(lambda c: c.pop("num_samples")), None),
}


@pytest.mark.parametrize(("make", "client"), CASES.values(), ids=CASES.keys())
def test_invalid_file_is_rejected(places, make: Make, client: str | None) -> None:
    error = rejected_import("emnist", make(places.source), places.to)
    assert error.path is not None and error.path.name == "all_data_0_niid_0_keep_0_train_9.json"
    assert error.client == client


@pytest.mark.parametrize("content", ["{}", '{"users_": []}', ""])
def test_damaged_shard_beside_valid_ones_is_rejected(places, content: str) -> None:
    files.leaf_directory(places.source)
    shard = next(places.source.rglob("*train*.json")).with_name("all_data_1_train_9.json")
    shard.write_text(content)
    error = rejected_import("emnist", places.source, places.to)
    assert error.path == shard and "beside LEAF files" in str(error)


def test_other_json_file_beside_leaf_files_is_ignored(places) -> None:
    files.leaf_directory(places.source)
    for path in list(places.source.rglob("*.json")):
        path.rename(places.source / path.name)
    (places.source / "settings.json").write_text("{}")
    assert import_dataset("emnist", [places.source], places.to / "store").is_new


def test_windows_are_joined_to_the_texts_they_were_cut_from(tmp_path: Path) -> None:
    first, second = "".join(chr(97 + i * 7 % 26) for i in range(95)), "Enter the Ghost. " * 6
    x, y = (a + b for a, b in zip(files.windows(first), files.windows(second), strict=True))
    files.write_leaf(tmp_path, "all_data", "train", {"ROLE": (x, y)})
    test = files.write_leaf(tmp_path, "all_data", "test", {"ROLE": files.windows(first)})
    # LEAF's own test files declare more samples than they have
    test.write_text(test.read_text().replace('"num_samples": [15]', '"num_samples": [94]'))
    store = import_dataset("shakespeare", [tmp_path], tmp_path / "out").store
    snippets = store.split("train").columns(0)["snippets"]
    assert isinstance(snippets, Ragged)
    assert [row.tobytes().decode() for row in snippets.rows()] == [first, second]
    assert "joined" in store.manifest["notes"]["snippets"]
