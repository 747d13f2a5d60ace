"""A small file that reserves disk space, so that run.json can still be written when the disk is full."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fedopt.files import open_without_links

_BYTES = 64 * 1024  # run.json and its temporary copy


class SpaceReserve:
    """The reserved space of a run directory."""

    def __init__(self, run: Path) -> None:
        self._file = run / ".reserve"

    def allocate(self) -> None:
        with suppress(OSError):  # without it, only the status after an error on a full disk is lost
            with open(self._file, "wb", opener=open_without_links) as file:
                file.write(b"\0" * _BYTES)

    def release(self) -> bool:
        """Free the space. Return whether there was any."""
        try:
            self._file.unlink()
        except OSError:
            return False
        return True
