"""Memory that is freed stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_freed_memory_stays_with_the_process() -> None:
    program = """
import resource
from fedopt.engine.allocation import keep_freed_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        bytearray(b"1") * (64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = pages()
keep_freed_memory()
pages()  # the first time, it has to be had
print(given_back, pages())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    given_back, kept = map(int, ran.stdout.split())
    assert kept < given_back / 10
