"""Parts of Markdown documents."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def embed_example(example: str) -> str:
    """Return the text of an example as a code block."""
    return f"```python\n{(ROOT / 'examples' / example).read_text()}```"


def format_table(*rows: tuple[object, ...]) -> str:
    """Return a table. The first row is the header."""
    header, *body = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([header, "|" + "---|" * len(rows[0]), *body])
