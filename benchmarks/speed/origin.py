"""Date, commit and machine of a measurement, and its place in a document."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import fedopt
from fedopt.engine import available_cores
from fedopt.errors import DataError
from fedopt.files import write_atomically


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


def measurement_origin() -> dict[str, Any]:
    """Return date, commit and machine of a measurement that is made now."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": current_commit(),
        "machine": describe_machine(),
    }


def describe_origin(origin: Mapping[str, Any]) -> str:
    """Return the beginning of a sentence about measurements.

    >>> machine = {"cpu": "EPYC", "cores": 2, "torch": "2.13.0"}
    >>> describe_origin({"date": "2026-11-16", "commit": "edefbae", "machine": machine})
    '2026-11-16, commit edefbae, EPYC with 2 cores, torch 2.13.0'
    """
    commit, machine = origin["commit"] or "unknown", origin["machine"]
    return (
        f"{origin['date']}, commit {commit}, {machine['cpu']} with {machine['cores']} cores, "
        f"torch {machine['torch']}"
    )


class MarkedBlock:
    """The text between `<!-- name: begin -->` and `<!-- name: end -->` in a file.

    The constructor checks that the markers exist, so that errors appear before a long measurement.
    """

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name
        self._read_surroundings()

    def write(self, lines: Sequence[str]) -> None:
        before, after = self._read_surroundings()
        write_atomically(self._file, "\n".join([before, *lines, after]))

    def _read_surroundings(self) -> tuple[str, str]:
        """Return the text up to and including the first marker, and from the second marker on."""
        begin, end = f"<!-- {self._name}: begin -->", f"<!-- {self._name}: end -->"
        try:
            text = self._file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"--write {self._file} cannot be read ({error})", path=self._file) from error
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if not has_begin or not has_end:
            raise DataError(
                f"--write {self._file}: the markers {begin} and {end} are missing; add them where the table "
                "belongs",
                path=self._file,
            )
        return before + begin, end + after
