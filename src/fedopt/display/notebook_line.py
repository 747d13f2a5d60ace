"""A line of text in a notebook that is replaced when it changes."""

from __future__ import annotations

import sys
import time
from typing import Any

_SECONDS_BETWEEN_UPDATES = 0.2  # browsers need not draw every round


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class NotebookLine:
    """One line below the cell. It appears with the first text."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._text = self._shown = ""
        self._last_update = 0.0

    def show(self, text: str, now: bool = False) -> None:
        """Replace the text. Frequent changes are shown later, unless `now` is set."""
        self._text = text
        time_passed = time.monotonic() - self._last_update
        if text != self._shown and (now or time_passed >= _SECONDS_BETWEEN_UPDATES):
            self._draw()

    def close(self) -> None:
        """Show the last text."""
        self.show(self._text, now=True)

    def _draw(self) -> None:
        from IPython.display import display

        content = {"text/plain": self._text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content, raw=True)
        self._shown, self._last_update = self._text, time.monotonic()
