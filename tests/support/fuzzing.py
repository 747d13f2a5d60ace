"""Damage files at random, with limits on memory and time."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from fuzz_targets import FuzzTarget
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peak import peak_memory

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "25"))  # per reader
MEMORY = 300 << 20
SECONDS = 10
INTERESTING = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\xff" * 4,
    b"\x7f" + b"\xff" * 7,
    b"\0" * 8,
    b"-1",
    b"[" * 20,
    b"e999",
)

Damage = tuple[str, float, bytes, int]
damages = st.lists(
    st.tuples(
        st.sampled_from(["overwrite", "insert", "delete", "truncate", "repeat"]),
        st.floats(0, 1, exclude_max=True),  # position in the file
        st.sampled_from(INTERESTING) | st.binary(min_size=1, max_size=8),
        st.integers(1, 64),  # number of bytes
    ),
    min_size=1,
    max_size=4,
)


def damage(content: bytes, damages: list[Damage]) -> bytes:
    for kind, share, value, length in damages:
        at = int(share * len(content))
        if kind == "overwrite":
            content = content[:at] + value + content[at + len(value) :]
        elif kind == "insert":
            content = content[:at] + value + content[at:]
        elif kind == "delete":
            content = content[:at] + content[at + length :]
        elif kind == "truncate":
            content = content[:at]
        else:
            content = content[: at + length] + content[at:]
    return content


def check_damaged_files(target: FuzzTarget, scratch: Path) -> None:
    """Check that damaged versions of a valid file are read or rejected."""
    seed = target.seed(scratch)
    assert target.run(seed, scratch), "the undamaged file is accepted"

    @settings(
        max_examples=EXAMPLES,
        derandomize="FUZZ_EXAMPLES" not in os.environ,
        deadline=timedelta(seconds=SECONDS),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(damages)
    def check(damages: list[Damage]) -> None:
        target.run(damage(seed, damages), scratch)

    with peak_memory() as peak:
        check()
    assert peak.added < MEMORY
