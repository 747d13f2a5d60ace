"""Measurements in a document: what stands between two markers is replaced, the rest is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedopt.errors import UserError
from fedopt.files import write_atomically


class Block:
    """The part of a document between `<!-- name: begin -->` and `<!-- name: end -->`."""

    def __init__(self, file: Path, name: str) -> None:
        """Refuses a document without markers, before anything is measured."""
        self._file, self._name = file, name
        self._around()

    def _around(self) -> tuple[str, str]:
        begin, end = f"<!-- {self._name}: begin -->", f"<!-- {self._name}: end -->"
        try:
            text = self._file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--write {self._file} cannot be read ({error})") from error
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise UserError(
                f"--write {self._file}: it has no {begin} and {end}; add them where the table belongs"
            )
        return before + begin, end + after

    def write(self, lines: Sequence[str]) -> None:
        before, after = self._around()
        write_atomically(self._file, "\n".join([before, *lines, after]))
