"""Fixtures of the benchmark tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from speed.workload import BenchmarkWorkload, build_workload

PEERS_DIRECTORY = Path(__file__).resolve().parents[2] / "benchmarks" / "peers"


@pytest.fixture(scope="session")
def peers_path() -> Path:
    """The directory `benchmarks/peers`."""
    return PEERS_DIRECTORY


@pytest.fixture(scope="session")
def peer_modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The modules `peer_protocol` and `torch_networks`, imported as the peers import them."""
    sys.path.insert(0, str(PEERS_DIRECTORY))
    try:
        import peer_protocol
        import torch_networks

        yield peer_protocol, torch_networks
    finally:
        sys.path.remove(str(PEERS_DIRECTORY))


@pytest.fixture(scope="session")
def small_workload(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkWorkload:
    """Two clients of emnist_ae with one step each."""
    return build_workload("emnist_ae", tmp_path_factory.mktemp("workload"), clients=2, steps=1)
