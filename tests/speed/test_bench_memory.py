"""Peak memory of a process tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from speed.memory import PeakMemory


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not report PSS")
def test_peak_includes_memory_that_a_child_has_freed():
    code = "import time; a = bytearray(96 << 20); a[::4096] = b'x' * len(a[::4096]); time.sleep(0.5); del a"
    with subprocess.Popen([sys.executable, "-c", code + "; time.sleep(0.3)"]) as child:
        with PeakMemory(child.pid) as peak:
            child.wait()
    assert peak.megabytes is not None and 96 < peak.megabytes < 200
