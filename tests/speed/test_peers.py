"""Peers: names, installation and the protocol between fedopt and a peer's process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from speed.peers import (
    PEERS,
    PeerInstallation,
    PeerProcess,
    PeerUnavailable,
    find_peer,
    parse_peers,
)

from fedopt.errors import UnknownName
from speed import peers


def test_peers_are_separated_by_commas():
    assert parse_peers(None) == list(PEERS) and parse_peers("") == []
    with pytest.raises(UnknownName) as error:
        parse_peers("pfl,fedjx")
    assert (error.value.kind, error.value.name, error.value.allowed) == ("peer", "fedjx", PEERS)


def test_missing_peer_names_the_installation_command(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    with pytest.raises(PeerUnavailable, match="python benchmarks/peers/setup.py flower"):
        find_peer("flower")


def write_peer(directory: Path, peers_path: Path, code: str) -> PeerInstallation:
    script = directory / "run.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(peers_path)!r})\n{code}")
    return PeerInstallation("scripted", script, Path(sys.executable))


def test_peer_runs_a_round_per_request_and_ends_when_its_input_closes(peers_path, tmp_path):
    code = """
from peer_protocol import Channel, serve
rounds = []
channel = Channel()
print("this output goes to the log")
serve(channel, lambda: rounds.append(1), lambda: None, settings="none")
open(sys.argv[1] + "/rounds", "w").write(str(len(rounds)))
"""
    peer = PeerProcess(write_peer(tmp_path, peers_path, code), tmp_path, 2)
    assert peer.ready["settings"] == "none"
    assert [peer.run_round() >= 0 for _ in range(3)] == [True] * 3
    peer.close()
    assert (tmp_path / "rounds").read_text() == "4"  # one to warm up and three on request


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('no luck')", r"its process ended \(ValueError: no luck\)"),
        ("from peer_protocol import Channel; Channel().exit_as_absent('no such task')", "no such task"),
        ("print('hello', flush=True); import time; time.sleep(60)", "invalid reply: b'hello'"),
    ],
)
def test_failed_peer_is_unavailable_with_the_reason(peers_path, tmp_path, code, reason):
    with pytest.raises(PeerUnavailable, match=reason):
        PeerProcess(write_peer(tmp_path, peers_path, code), tmp_path, 1)


def test_all_peers_have_a_script_and_pinned_requirements(peers_path):
    for name in PEERS:
        lines = (peers_path / name / "requirements.txt").read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert (peers_path / name / "run.py").is_file() and pins
        assert all("==" in line for line in pins)
        assert "torch==2.13.0" in pins or name == "fedjax"
    assert "torch==2.13.0" in (peers_path / "constraints.txt").read_text()
