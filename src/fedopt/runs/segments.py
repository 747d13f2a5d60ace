"""The segments of a run in run.json: which software and CPU computed which rounds.

A run that is interrupted and resumed has several segments. Different versions may compute different numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from fedopt.processor import processor_model
from fedopt.version import __version__

Segment = dict[str, Any]
_VERSIONS = ("fedopt", "torch", "numpy", "cpu", "processor")  # what can change results


def new_segment(round: int) -> Segment:
    """The segment of this process, which starts after `round`."""
    return {
        "after_round": round,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "fedopt": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor_model(),
    }


def add_segment(earlier: Sequence[Segment], new: Segment) -> list[Segment]:
    """Append a segment. Earlier segments whose rounds are all run again are removed."""
    return [segment for segment in earlier if segment["after_round"] < new["after_round"]] + [new]


def describe_change(info: Mapping[str, Any]) -> str:
    """Describe how this process differs from the one that wrote run.json; "" if results cannot differ.

    Runs of older versions record fewer properties.
    """
    segments = info.get("segments")
    before = segments[-1] if segments else {"fedopt": info["fedopt"]}
    now = new_segment(0)
    changed = [name for name in _VERSIONS if name in before and before[name] != now[name]]
    return ", ".join(f"{name} {before[name]} (now {now[name]})" for name in changed)
