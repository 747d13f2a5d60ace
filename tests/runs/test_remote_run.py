"""Run directories at URLs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from object_store import read_all, remote

import fedopt
from fedopt.documents import seal
from fedopt.errors import RemoteDirectoryError, RunDirectoryError, UploadError
from fedopt.remote.directory import RemoteDirectory
from fedopt.remote.location import RemoteUrl
from fedopt.runs.records import read_run
from fedopt.runs.remote_run import take_over

SETTINGS = {
    "data.clients": 6,
    "clients_per_round": 2,
    "client.epochs": 1,
    "eval.every": 1,
    "checkpoint.every": 1,
}


def run(out: str | Path, rounds: int = 3, **changes: Any) -> fedopt.RunResult:
    config = SETTINGS | changes
    return fedopt.run("synthetic_lr", algorithm="scaffold", rounds=rounds, config=config, out=out)


@pytest.fixture
def other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it to use the empty cache of another machine from now on."""

    def move() -> Path:
        cache = tmp_path / f"cache-{time.monotonic_ns()}"
        monkeypatch.setenv("FEDOPT_DATA", str(cache))
        return cache

    return move


def write_all(url: str, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        remote(url).write(name, content)


def without_times(lines: bytes) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in lines.splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_remote_directory_equals_a_local_one(memory: str, tmp_path: Path):
    there, here = run(memory), run(tmp_path / "local")
    files = read_all(memory)
    local = {p.relative_to(tmp_path / "local").as_posix() for p in (tmp_path / "local").rglob("*")}
    assert there.x_sha256 == here.x_sha256
    assert set(files) == {n for n in local if (tmp_path / "local" / n).is_file() and n[0] != "."}
    assert without_times(files["metrics.jsonl"]) == without_times(
        (tmp_path / "local" / "metrics.jsonl").read_bytes()
    )
    assert there.url == there.summary()["run"] == memory
    assert json.loads(files["run.json"])["status"] == "done"


# A run that is killed before its first checkpoint starts again, with a warning.
@pytest.mark.filterwarnings("ignore::fedopt.errors.ResumeWarning")
def test_run_killed_after_any_uploaded_file_resumes_to_the_same_result(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_machine: Any
):
    """What a kill leaves at the URL is its content after one of the uploads or deletions."""
    snapshots: list[dict[str, bytes]] = []
    upload, write, delete = RemoteDirectory.upload, RemoteDirectory.write, RemoteDirectory.delete

    def write_one(self: RemoteDirectory, name: str, content: bytes) -> None:
        write(self, name, content)
        snapshots.append(read_all(memory))

    def upload_one_by_one(self: RemoteDirectory, directory: Path, names: list[str]) -> None:
        for name in names:
            upload(self, directory, [name])
            snapshots.append(read_all(memory))

    def delete_one_by_one(self: RemoteDirectory, names: list[str]) -> None:
        for name in names:
            delete(self, [name])
            snapshots.append(read_all(memory))

    with monkeypatch.context() as patch:
        patch.setattr(RemoteDirectory, "upload", upload_one_by_one)
        patch.setattr(RemoteDirectory, "write", write_one)
        patch.setattr(RemoteDirectory, "delete", delete_one_by_one)
        expected = run(memory, rounds=2, **{"checkpoint.keep": 1})
    assert len(snapshots) > 15
    assert any(not any(n.endswith("position.json") for n in s) and len(s) > 6 for s in snapshots)
    for at, snapshot in enumerate(snapshots):
        other_machine()
        write_all(f"memory://after-{at}", snapshot)
        take_over(RemoteUrl(f"memory://after-{at}"))
        again = run(f"memory://after-{at}", rounds=2, **{"checkpoint.keep": 1})
        assert again.x_sha256 == expected.x_sha256
        assert without_times(read_all(f"memory://after-{at}")["metrics.jsonl"]) == without_times(
            snapshots[-1]["metrics.jsonl"]
        )


def test_failed_uploads_are_repeated_and_lose_nothing(
    memory: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    expected = run(tmp_path / "local")
    upload, failed = RemoteDirectory.upload, []

    def fail_twice(self: RemoteDirectory, directory: Path, names: list[str]) -> None:
        if len(failed) < 2 and any(name.endswith("position.json") for name in names):
            failed.append(names)
            raise RemoteDirectoryError("the host is down", url=memory)
        upload(self, directory, names)

    monkeypatch.setattr(RemoteDirectory, "upload", fail_twice)
    assert run(memory).x_sha256 == expected.x_sha256
    assert [len(names) for names in failed] == [1, 2]  # the second upload has the first checkpoint too
    assert json.loads(read_all(memory)["run.json"])["x_sha256"] == expected.x_sha256


def test_run_that_could_not_be_uploaded_is_uploaded_by_the_same_command(
    memory: str, monkeypatch: pytest.MonkeyPatch
):
    run(memory, rounds=1)

    def fail(self: RemoteDirectory, first: object, second: object) -> None:
        if second:
            raise RemoteDirectoryError("the host is down", url=memory)

    with monkeypatch.context() as patch, pytest.raises(UploadError) as error:
        patch.setattr(RemoteDirectory, "upload", fail)
        patch.setattr(RemoteDirectory, "write", fail)
        run(memory)
    assert error.value.url == memory
    assert error.value.path is not None
    finished = read_run(error.value.path)
    assert (finished.status, finished.rounds) == ("done", 3)
    assert json.loads(read_all(memory)["run.json"])["rounds"] == 1
    result = run(memory)
    assert [line["round"] for line in result.train] == [1, 2, 3]
    assert json.loads(read_all(memory)["run.json"])["x_sha256"] == finished.info["x_sha256"]


def test_old_local_copy_does_not_replace_a_new_run_at_the_same_url(memory: str):
    run(memory)
    remote(memory).delete(list(read_all(memory)))
    assert [line["round"] for line in run(memory, rounds=2, seed=1).train] == [1, 2]
    assert json.loads(read_all(memory)["run.json"])["seed"] == 1


def test_run_that_is_deleted_at_the_url_after_a_kill_starts_again(memory: str, tmp_path: Path):
    """A kill leaves the local copy as it is during the run."""
    copies: list[Path] = []

    def keep_copy(step: fedopt.Step) -> None:
        if step.position.round == 3:
            shutil.copytree(tmp_path / "cache", tmp_path / "killed")
            copies.append(tmp_path / "killed")

    settings = {"algorithm": "scaffold", "rounds": 4, "config": SETTINGS}
    fedopt.run("synthetic_lr", **settings, out=memory, callback=keep_copy)
    remote(memory).delete(list(read_all(memory)))
    shutil.rmtree(tmp_path / "cache")
    copies[0].rename(tmp_path / "cache")
    rounds: list[int] = []
    fedopt.run(
        "synthetic_lr", **settings, out=memory, callback=lambda step: rounds.append(step.position.round)
    )
    assert rounds[-4:] == [1, 2, 3, 4]


def test_longer_run_continues_on_another_machine(memory: str, tmp_path: Path, other_machine: Any):
    run(memory, rounds=2)
    other_machine()
    assert run(memory, rounds=3).x_sha256 == run(tmp_path / "local", rounds=3).x_sha256


def test_url_of_another_configuration_is_refused_by_its_name(memory: str):
    run(memory, rounds=1)
    before = read_all(memory)
    with pytest.raises(RunDirectoryError) as error:
        run(memory, rounds=1, seed=5)
    assert memory in str(error.value) and "cache" not in str(error.value)
    assert read_all(memory) == before


@pytest.mark.parametrize(
    "kept", [".env", ".hidden/f", "notes.txt", "checkpoints/epoch1.pt", "run/config.toml"]
)
def test_url_with_other_files_is_refused_and_not_changed(memory: str, kept: str, tmp_path: Path):
    files = {kept: b"mine", "run.json": b"mine"}
    write_all(memory, files)
    with pytest.raises(RemoteDirectoryError) as error:
        run(memory, rounds=1)
    assert error.value.url == memory
    assert read_all(memory) == files
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name == Path(kept).name]


def test_files_beside_a_run_are_not_downloaded_replaced_or_deleted(memory: str, tmp_path: Path):
    run(memory, rounds=1)
    others = {".env": b"1", "notes.txt": b"2", "checkpoints/epoch1.pt": b"3", "clients/list.csv": b"4"}
    write_all(memory, others)
    run(memory, rounds=3)
    files = read_all(memory)
    assert {name: files[name] for name in others} == others
    assert "checkpoints/000001/position.json" not in files  # an old checkpoint of the run
    assert not list((tmp_path / "cache").rglob("notes.txt"))


def test_foreign_config_toml_is_refused_and_nothing_is_changed(memory: str):
    files = {"config.toml": b"[tool]", "checkpoints/000001/weights.pt": b"1", "checkpoints/epoch1.pt": b"2"}
    write_all(memory, files)
    with pytest.raises(fedopt.errors.FedoptError):
        run(memory, rounds=1)
    assert read_all(memory) == files


def test_reader_downloads_nothing_where_there_is_no_run(memory: str, monkeypatch: pytest.MonkeyPatch):
    write_all(memory, {"notes.txt": b"1", "run.json": b"{}"})
    monkeypatch.setattr(RemoteDirectory, "download", lambda *args: pytest.fail("downloaded"))
    with pytest.raises(RemoteDirectoryError):
        fedopt.load(memory)


def writer(url: str) -> str | None:
    name: str | None = json.loads(read_all(url)["run.json"]).get("writer")
    return name


def test_each_process_writes_its_own_id_to_run_json(memory: str):
    run(memory, rounds=1)
    first = writer(memory)
    run(memory, rounds=2)
    assert first and writer(memory) not in (None, first)
    local = json.loads(read_all(memory)["run.json"])
    run(memory, rounds=2)  # a finished run is only read
    assert json.loads(read_all(memory)["run.json"]) == local


def test_run_of_another_machine_is_refused_until_it_is_taken_over_and_its_process_stops(
    memory: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other_machine: Any
):
    """After its second round, the run is started on a second machine, without and with `take_over`."""
    first_cache = tmp_path / "cache"
    taken: list[dict[str, bytes]] = []

    def continue_elsewhere(step: fedopt.Step) -> None:
        if step.position.round == 2:
            other_machine()
            before = read_all(memory)
            for start in (lambda: run(memory), lambda: fedopt.resume(memory)):
                with pytest.raises(RemoteDirectoryError) as error:
                    start()
                assert error.value.url == memory
            assert read_all(memory) == before
            result = fedopt.resume(memory, take_over=True)
            assert isinstance(result, fedopt.RunResult) and result.train[-1]["round"] == 3
            taken.append(read_all(memory))
            monkeypatch.setenv("FEDOPT_DATA", str(first_cache))

    with pytest.raises(UploadError) as error:
        fedopt.run(
            "synthetic_lr",
            algorithm="scaffold",
            rounds=3,
            config=SETTINGS,
            out=memory,
            callback=continue_elsewhere,
        )
    assert error.value.url == memory
    assert read_all(memory) == taken[0]
    assert error.value.path is not None and first_cache in error.value.path.parents
    assert read_run(error.value.path).rounds >= 2  # its files stay
    assert str(error.value.path) in str(error.value)


def test_two_machines_that_start_one_run_do_not_mix_their_files(memory: str, monkeypatch: pytest.MonkeyPatch):
    """Another machine has uploaded its first files between the opening here and the first upload."""
    others = json.dumps({"status": "running", "writer": "other"}).encode()
    upload = RemoteDirectory.files

    def files(self: RemoteDirectory) -> list[str]:
        found = upload(self)
        if not found:
            monkeypatch.setattr(RemoteDirectory, "read", read_others)
        return found

    read, calls = RemoteDirectory.read, []

    def read_others(self: RemoteDirectory, name: str) -> bytes | None:
        calls.append(name)
        if len(calls) == 2:  # the first is that of the opening
            self.write("run.json", others)
        return read(self, name)

    monkeypatch.setattr(RemoteDirectory, "files", files)
    with pytest.raises(UploadError):
        run(memory, rounds=1)
    monkeypatch.undo()
    assert remote(memory).read("run.json") == others


def test_killed_process_of_this_machine_does_not_block_its_successor(memory: str, tmp_path: Path):
    """A kill leaves the status "running" and the id of the killed process at the URL."""
    run(memory, rounds=2)
    info = json.loads(read_all(memory)["run.json"]) | {"status": "running"}
    remote(memory).write("run.json", json.dumps(seal(info)).encode())
    assert fedopt.report(memory, tmp_path / "page.html").is_file()
    assert run(memory, rounds=3).x_sha256 == run(tmp_path / "local", rounds=3).x_sha256


def test_run_of_another_machine_that_has_ended_is_continued_without_take_over(
    memory: str, tmp_path: Path, other_machine: Any
):
    def stop(step: fedopt.Step) -> object:
        return fedopt.STOP if step.position.round == 2 else None

    fedopt.run("synthetic_lr", algorithm="scaffold", rounds=3, config=SETTINGS, out=memory, callback=stop)
    other_machine()
    result = fedopt.resume(memory)
    assert isinstance(result, fedopt.RunResult)
    assert result.x_sha256 == run(tmp_path / "local").x_sha256


def test_take_over_changes_nothing_where_there_is_no_run(memory: str):
    files = {"run.json": b'{"writer": "mine"}', "notes.txt": b"1"}
    write_all(memory, files)
    with pytest.raises(RemoteDirectoryError):
        fedopt.resume(memory, take_over=True)
    assert read_all(memory) == files


def test_logger_files_follow_the_run_to_another_machine(memory: str, other_machine: Any):
    """They have the id of the run at the tracking service, so that it is not logged twice."""
    run(memory, rounds=1)
    remote(memory).write("loggers/wandb.jsonl", b'{"run": "abc"}\n')
    cache = other_machine()
    run(memory, rounds=2)
    [copy] = cache.rglob("wandb.jsonl")
    assert copy.read_bytes() == b'{"run": "abc"}\n'


def test_names_that_lead_out_of_the_url_are_not_downloaded(memory: str, monkeypatch: pytest.MonkeyPatch):
    run(memory, rounds=1)
    names = ["../config.toml", "/tmp/config.toml", "tensorboard/events.1/../../../evil", "clients/../../1-1"]
    found, got = RemoteDirectory.files, []
    monkeypatch.setattr(RemoteDirectory, "files", lambda self: [*names, *found(self)])
    download = RemoteDirectory.download

    def note(self: RemoteDirectory, chosen: list[str], directory: Path) -> None:
        got.extend(chosen)
        download(self, chosen, directory)

    monkeypatch.setattr(RemoteDirectory, "download", note)
    run(memory, rounds=2)
    fedopt.load(memory)
    assert got and not set(got) & set(names)


def test_file_url_is_the_directory_itself(tmp_path: Path):
    result = run(f"file://{tmp_path}/run", rounds=1)
    assert (result.path, result.url) == (tmp_path / "run", None)
    assert (tmp_path / "run" / "config.toml").is_file()


def test_readers_take_urls(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    result = run(memory)
    monkeypatch.chdir(tmp_path)
    assert fedopt.load(memory).round == 3
    assert fedopt.load(memory, round=2).round == 2
    measured = fedopt.evaluate(memory)
    assert measured.value == pytest.approx(fedopt.evaluate(result).value)
    assert measured.run == memory
    assert fedopt.report(memory) == Path("report.html")
    assert "scaffold" in Path("report.html").read_text()
    assert [path.is_file() for path in fedopt.export(memory)] == [True, True]
    assert not list(Path("/tmp").glob(f"fedopt-*/{Path(memory).name}"))
    for read in (fedopt.load, fedopt.evaluate, fedopt.report, fedopt.export, fedopt.resume):
        with pytest.raises(RemoteDirectoryError) as error:
            read("memory://nothing")
        assert error.value.url == "memory://nothing"


@pytest.mark.xdist_group("s3")
def test_killed_command_on_s3_is_taken_over_by_another_machine(s3: str, tmp_path: Path, other_machine: Any):
    """SIGKILL in the middle of the third checkpoint's upload, before its last file."""
    url = f"{s3}/runs/killed"
    code = (
        "import os, signal, sys\n"
        "from fedopt.remote.directory import RemoteDirectory\n"
        "upload = RemoteDirectory.upload\n"
        "def kill(self, directory, names):\n"
        "    if 'checkpoints/000003/position.json' in names:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    upload(self, directory, names)\n"
        "RemoteDirectory.upload = kill\n"
        "from fedopt.cli import main\n"
        "main()\n"
    )
    words = ["run", "synthetic_lr", "--algorithm", "scaffold", "--rounds", "4", "--executor", "serial"]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-c", code, *words, "--out", url]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    files = read_all(url)
    assert {"checkpoints/000002/position.json", "checkpoints/000003/state.safetensors"} <= set(files)
    assert json.loads(files["run.json"])["status"] == "running"

    other_machine()
    with pytest.raises(RemoteDirectoryError) as error:
        fedopt.resume(url)
    assert error.value.url == url
    result = fedopt.resume(url, take_over=True)
    assert isinstance(result, fedopt.RunResult)
    assert result.x_sha256 == run(tmp_path / "local", rounds=4).x_sha256
    files = read_all(url)
    assert json.loads(files["run.json"])["x_sha256"] == result.x_sha256
    assert {name.split("/")[1] for name in files if name.startswith("checkpoints/")} == {"000003", "000004"}
