"""Replace the text between two markers of a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedopt.errors import DataError
from fedopt.files import write_atomically


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
