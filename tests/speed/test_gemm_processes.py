"""Processes that time matrix products."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from speed.matrix_products import GemmProcesses, MatrixProduct
from speed.memory import process_tree


def test_products_are_timed_in_processes_that_end_on_close():
    before = set(process_tree(os.getpid()))
    products = [MatrixProduct("outputs", 8, 16, 4), MatrixProduct("weight", 4, 8, 16, times=2)]
    with closing(GemmProcesses(products, workers=1)) as gemm:
        assert 0 < gemm.step_seconds() < 1
        assert set(process_tree(os.getpid())) - before
    time.sleep(0.2)
    remaining = set(process_tree(os.getpid())) - before
    assert not {pid for pid in remaining if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}
