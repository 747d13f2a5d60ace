"""The final models of all algorithms do not change between versions of fedopt."""

from __future__ import annotations

import checksum_watch
import pytest


@pytest.mark.parametrize("case", checksum_watch.CASES)
def test_final_model_equals_the_recorded_one(case: str) -> None:
    """After an intended change of results: python benchmarks/checksum_watch.py"""
    key = checksum_watch.machine_key()
    recorded = checksum_watch.read_recorded().get(key)
    if recorded is None:
        pytest.skip(f"no checksums are recorded for {key}; benchmarks/checksum_watch.py records them")
    assert checksum_watch.compute_checksum(case) == recorded[case]
