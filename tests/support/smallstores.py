"""A store of two clients, and Python processes that use the store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedopt.data.store import write_store


def two_clients() -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "a",
        {
            "x": np.array([[1, 2], [3, 4]], np.float32),
            "t": [np.array([5, 6, 7], np.uint16), np.array([], np.uint16)],
        },
    )
    yield "b", {"x": np.array([[9, 9]], np.float32), "t": [np.array([8], np.uint16)]}


def write_small_store(directory: Path, **more: Any) -> None:
    write_store(directory, "own", [], {"train": two_clients(), "test": two_clients()}, **more)


def remove_checksums(store: Path, **changes: Any) -> None:
    """Rewrite the manifest as fedopt 0.2.0 wrote it, which had no checksums, with `changes`."""
    path = store / "manifest.json"
    manifest = json.loads(path.read_bytes()) | changes
    del manifest["sha256"], manifest["checksum"]
    path.write_text(json.dumps(manifest, indent=1))


def run_python(code: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Start a Python process that has imported the store functions."""
    head = "import sys, time, numpy as np\nfrom pathlib import Path\nfrom fedopt.data.store import *\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
