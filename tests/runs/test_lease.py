"""At most one process writes to a URL."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from object_store import remote

from fedopt.errors import RemoteDirectoryError
from fedopt.runs import lease as leases
from fedopt.runs.lease import Lease, has_valid_lease, remove_lease

HERE, ELSEWHERE = Path("/machine/a"), Path("/machine/b")


def test_second_machine_is_refused_until_the_lease_is_released(memory: str):
    first = Lease(remote(memory), HERE)
    with pytest.raises(RemoteDirectoryError) as error:
        Lease(remote(memory), ELSEWHERE)
    assert error.value.url == memory
    first.release()
    assert remote(memory).files() == []
    Lease(remote(memory), ELSEWHERE).release()


def test_lease_expires_five_minutes_after_its_last_renewal(memory: str):
    Lease(remote(memory), HERE)._released.set()  # the process dies
    document = json.loads(remote(memory).read(leases.NAME) or b"")
    assert document["expires"] == pytest.approx(time.time() + 300, abs=20)
    remote(memory).write(leases.NAME, json.dumps({**document, "expires": time.time() - 1}).encode())
    Lease(remote(memory), ELSEWHERE).release()


def test_dead_process_of_this_machine_does_not_block_its_successor(memory: str):
    Lease(remote(memory), HERE)._released.set()
    Lease(remote(memory), HERE).release()


def test_other_machine_with_the_same_name_and_path_is_refused(memory: str, monkeypatch: pytest.MonkeyPatch):
    """A copy of a virtual machine has the same host name and the same path, but another start."""
    Lease(remote(memory), HERE)._released.set()
    monkeypatch.setattr(leases, "_BOOT_ID", Path("/nowhere"))
    with pytest.raises(RemoteDirectoryError):
        Lease(remote(memory), HERE)


def test_directory_on_another_file_system_is_another_place(memory: str, tmp_path: Path):
    """Containers of one machine may have the same host name and the same path."""
    place = tmp_path / "run"
    Lease(remote(memory), place / "copy")._released.set()
    place.mkdir()
    with pytest.raises(RemoteDirectoryError):
        Lease(remote(memory), place / "copy")


def test_owner_stops_after_another_process_has_taken_over(memory: str):
    first = Lease(remote(memory), HERE)
    remove_lease(remote(memory))
    second = Lease(remote(memory), ELSEWHERE)
    with pytest.raises(RemoteDirectoryError):
        first.check()
    assert first.is_lost
    first.release()
    second.check()  # the loser does not delete the lease of its successor
    second.release()


def test_lease_is_renewed_while_the_process_lives(memory: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.05)
    lease = Lease(remote(memory), HERE)
    first = json.loads(remote(memory).read(leases.NAME) or b"")["expires"]
    deadline = time.monotonic() + 20
    while json.loads(remote(memory).read(leases.NAME) or b"")["expires"] == first:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lease.release()


def test_downloaded_copy_shows_whether_the_run_is_active(memory: str, tmp_path: Path):
    lease = Lease(remote(memory), HERE)
    remote(memory).download([leases.NAME], tmp_path)
    assert has_valid_lease(tmp_path)
    lease.release()
    (tmp_path / leases.NAME).write_text("{}")
    assert not has_valid_lease(tmp_path)
