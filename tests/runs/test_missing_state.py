"""A resumed run reports files that are missing or changed, and other versions."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_cases import ROUNDS, interrupted, train
from safetensors.torch import load_file, save, save_file
from written import read_info, read_lines

import fedopt.runs.segments as segments
from fedopt.engine.loop import Step
from fedopt.errors import DiskError, RunDirectoryError
from fedopt.runs.directory import remove_checkpoints


def change_values(row: Path) -> None:
    """Write a valid row with other values."""
    save_file({name: vector + 1 for name, vector in load_file(row).items()}, row)


ROW_DAMAGE: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "changed": change_values,
    "replaced by an older row of another client": lambda row: shutil.copy(
        next(other for other in sorted(row.parent.iterdir()) if other != row), row
    ),
    "empty": lambda row: row.write_bytes(b""),
}


@pytest.mark.parametrize("damage", ROW_DAMAGE)
def test_deleted_or_changed_client_row_is_an_error_on_resume(damage: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted("scaffold", out, 2, after=4)
    row = sorted((out / "clients").glob("*-000003.safetensors"))[0]
    ROW_DAMAGE[damage](row)
    metrics = read_lines(out)
    with pytest.raises(RunDirectoryError) as caught:
        train("scaffold", out, 2)
    assert caught.value.path == row
    assert str(caught.value).count("\n") == 0
    assert read_lines(out) == metrics


def test_row_that_no_checkpoint_lists_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted("scaffold", out, 2, after=4)
    rows = sorted((out / "clients").glob("*.safetensors"))
    visited = {row.name.split("-")[0] for row in rows}
    absent = next(f"{client:07d}" for client in range(24) if f"{client:07d}" not in visited)
    shutil.copy(rows[0], out / "clients" / f"{absent}-000001.safetensors")
    assert train("scaffold", out, 2).x_sha256 == train("scaffold", None).x_sha256


def test_checkpoint_lists_the_latest_row_of_each_client(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train("scaffold", out)
    for checkpoint in (out / "checkpoints").iterdir():
        listed = json.loads((checkpoint / "clients.json").read_text())
        done = int(checkpoint.name)
        rows = [row for row in sorted((out / "clients").iterdir()) if int(row.stem[8:]) < done]
        latest = {row.name[:7]: row for row in rows}  # sorted by round within a client
        expected = {row.name: hashlib.sha256(row.read_bytes()).hexdigest() for row in latest.values()}
        assert listed == expected


def test_checkpoint_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Older checkpoints have one checksum, of the state, and no list of rows."""
    out = tmp_path / "run"
    interrupted("scaffold", out, 2, after=4)
    for checkpoint in (out / "checkpoints").iterdir():
        fields = json.loads((checkpoint / "position.json").read_text())
        fields["state_sha256"] = fields.pop("files")["state.safetensors"]
        sign(checkpoint, fields)
        (checkpoint / "clients.json").unlink()
    assert train("scaffold", out, 2).x_sha256 == train("scaffold", None).x_sha256


def sign(checkpoint: Path, fields: dict[str, Any]) -> None:
    """Write position.json with a valid checksum."""
    fields.pop("sha256")
    text = json.dumps(fields, sort_keys=True).encode()
    (checkpoint / "position.json").write_text(
        json.dumps(fields | {"sha256": hashlib.sha256(text).hexdigest()})
    )


def with_vectors(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[dict[str, Any], Path], bytes]:
    return lambda fields, file: save(change(load_file(file)))


SIGNED_DAMAGE: dict[str, Callable[[dict[str, Any], Path], bytes]] = {
    "not a safetensors file": lambda fields, file: b"\x00" * 64,
    "a vector is missing": with_vectors(lambda vectors: {"y": vectors["x"]}),
    "a short vector": with_vectors(lambda vectors: vectors | {"x": vectors["x"][:-1].clone()}),
    "half precision": with_vectors(lambda vectors: vectors | {"x": vectors["x"].half()}),
    "a round that is a string": lambda fields, file: fields.update(round="4") or file.read_bytes(),
    "another round": lambda fields, file: fields.update(round=3) or file.read_bytes(),
    "a schedule that is a list": lambda fields, file: fields.update(client_schedule=[]) or file.read_bytes(),
}


@pytest.mark.parametrize("damage", SIGNED_DAMAGE)
def test_invalid_checkpoint_with_valid_checksums_is_damaged(damage: str, tmp_path: Path) -> None:
    """The previous checkpoint is used."""
    out = tmp_path / "run"
    interrupted("fedyogi", out, 1, after=4)
    checkpoint = out / "checkpoints" / "000004"
    fields = json.loads((checkpoint / "position.json").read_text())
    state = checkpoint / "state.safetensors"
    data = SIGNED_DAMAGE[damage](fields, state)
    state.write_bytes(data)
    fields["files"] = {"state.safetensors": hashlib.sha256(data).hexdigest()}
    sign(checkpoint, fields)
    messages: list[str] = []
    assert train("fedyogi", out, log=messages.append).x_sha256 == train("fedyogi", None).x_sha256
    assert any("000004" in text and "damaged" in text and "\n" not in text for text in messages)


@pytest.mark.parametrize("rounds", [ROUNDS, ROUNDS + 1])
def test_restart_without_checkpoints_is_reported(rounds: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train("fedyogi", out)
    remove_checkpoints(out)
    messages: list[str] = []
    result = train("fedyogi", out, settings={"rounds": rounds}, log=messages.append)
    assert result.rounds == rounds
    assert [text for text in messages if "no checkpoint" in text and f"{ROUNDS} rounds" in text]


def test_each_segment_records_its_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    interrupted("fedyogi", out, 1, after=2)
    monkeypatch.setattr(segments, "__version__", "99.1")
    messages: list[str] = []
    train("fedyogi", out, settings={"rounds": 3}, log=messages.append)
    assert [text for text in messages if "99.1" in text and "may differ" in text]
    recorded = read_info(out)["segments"]
    assert [segment["after_round"] for segment in recorded] == [0, 2]
    assert recorded[0]["fedopt"] != recorded[1]["fedopt"] == "99.1"
    keys = {"torch", "numpy", "python", "cpu", "processor", "started"}
    assert all(keys <= segment.keys() for segment in recorded)


def test_continuing_on_another_cpu_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPUs with the same vector instructions may still round differently."""
    out = tmp_path / "run"
    interrupted("fedyogi", out, 1, after=2)
    monkeypatch.setattr(segments, "processor_model", lambda: "Imaginary family 0 model 0")
    messages: list[str] = []
    train("fedyogi", out, settings={"rounds": 3}, log=messages.append)
    assert [text for text in messages if "now Imaginary family 0" in text and "may differ" in text]


def test_same_versions_are_not_reported(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted("fedyogi", out, 1, after=2)
    messages: list[str] = []
    train("fedyogi", out, log=messages.append)
    assert messages == ["continuing after round 2"]


def test_segment_whose_rounds_are_run_again_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for after in (3, 3):  # the second attempt also ends before its first checkpoint
        interrupted("fedyogi", out, 2, after=after)
    train("fedyogi", out, 2)
    assert [segment["after_round"] for segment in read_info(out)["segments"]] == [0, 2]


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted("scaffold", out, 2, after=3)
    (out / "checkpoints" / ".000004.17.tmp").mkdir()
    (out / "checkpoints" / ".000004.17.tmp" / "state.safetensors").write_bytes(b"half")
    (out / ".run.json.17.tmp").touch()
    (out / ".checkpoints.removed").mkdir()
    train("scaffold", out, 2)
    assert sorted(path.name for path in out.rglob(".*")) == [".lock"]


@pytest.mark.parametrize("name", ["checkpoints", "clients", "loggers", "tensorboard"])
def test_link_in_place_of_a_directory_is_refused(name: str, tmp_path: Path) -> None:
    """The target keeps its files. Otherwise a received run directory could change files elsewhere."""
    out, victim = tmp_path / "run", tmp_path / "victim"
    interrupted("scaffold", out, 2, after=3)
    victim.mkdir()
    (victim / ".notes.tmp").write_text("private")
    shutil.rmtree(out / name, ignore_errors=True)
    (out / name).symlink_to(victim)
    with pytest.raises(RunDirectoryError) as caught:
        train("scaffold", out, 2)
    assert caught.value.path == out / name
    assert [path.name for path in victim.iterdir()] == [".notes.tmp"]


def truncate(file: Path) -> None:
    file.write_bytes(b"")


def replace_by_a_copy(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


def replace_by_a_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


REPLACED: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "metrics deleted": ("metrics.jsonl", Path.unlink),
    "metrics replaced": ("metrics.jsonl", replace_by_a_copy),
    "metrics emptied": ("metrics.jsonl", truncate),
    "metrics replaced by a link": ("metrics.jsonl", replace_by_a_link),
    "checkpoints replaced by a link": ("checkpoints", replace_by_a_link),
    "client rows replaced by a link": ("clients", replace_by_a_link),
}


@pytest.mark.parametrize("change", REPLACED)
@pytest.mark.parametrize("after", [3, ROUNDS])  # ROUNDS: after the last checkpoint
def test_run_whose_files_are_replaced_meanwhile_fails(change: str, after: int, tmp_path: Path) -> None:
    name, replace = REPLACED[change]
    out = tmp_path / "run"

    def on_step(step: Step) -> None:
        if step.position.round == after:
            replace(out / name)

    with pytest.raises(DiskError) as caught:
        train("scaffold", out, on_step=on_step)
    assert caught.value.path == out / name and "\n" not in str(caught.value)
    assert read_info(out)["status"] == "failed"
    if name == "checkpoints":  # nothing is written through the link
        assert int(max(path.name for path in (tmp_path / "elsewhere").iterdir())) == after
