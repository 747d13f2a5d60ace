"""A peer whose first round differs from ours is not measured."""

from __future__ import annotations

import numpy as np
import pytest
from bench_rounds import run_engine_round
from speed.peers import PeerUnavailable, compare_first_round


def test_peer_with_a_different_first_round_is_unavailable(small_workload, tmp_path):
    ours = run_engine_round(small_workload)
    untrained, truncated = tmp_path / "untrained.npy", tmp_path / "truncated.npy"
    np.save(untrained, small_workload.x.numpy())
    np.save(truncated, small_workload.x.numpy()[:-1])
    with pytest.raises(PeerUnavailable, match="not equivalent"):
        compare_first_round(small_workload, ours, untrained)
    with pytest.raises(PeerUnavailable, match="2,837,313 parameters .* ours has 2,837,314"):
        compare_first_round(small_workload, ours, truncated)
    with pytest.raises(PeerUnavailable, match="no model was written"):
        compare_first_round(small_workload, ours, tmp_path / "missing.npy")
