"""Commit and machine that measurements belong to."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import fedopt
from fedopt.engine.executors import available_cores


def current_commit() -> str | None:
    """Return the commit of the running source, with a note if files have changed since."""
    package = Path(fedopt.__file__).resolve().parent
    try:
        head, status = (
            subprocess.run(["git", *arguments], cwd=package, capture_output=True, text=True, timeout=20)
            for arguments in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", str(package)])
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if head.returncode or status.returncode:
        return None
    return head.stdout.strip() + (" with changes" if status.stdout.strip() else "")


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, operating system and versions."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": cpu,
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
