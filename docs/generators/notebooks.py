"""Convert pages to notebooks. Blocks in `python` and `sh` become cells that can be executed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode, v4

from generators.markdown import ROOT

FOLDER = ROOT / "docs" / "notebooks"
PAGES = ("first-run", "algorithm-2", "own-task")  # pages with a notebook
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)")
ONLY_ON_SITE = re.compile(r"^(<!--.*-->|</?div.*>|\[Download this page.*)\n", re.MULTILINE)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Part(NamedTuple):
    """A piece of a page: text, or a block of code in `python` or `sh`."""

    language: str  # "" for text and for blocks that are not executed
    text: str


def split_page(markdown: str) -> Iterator[Part]:
    """Yield the parts of a page in order.

    >>> list(split_page("Add:\\n\\n```python\\n1 + 1\\n```\\n"))
    [Part(language='', text='Add:'), Part(language='python', text='1 + 1'), Part(language='', text='')]
    """
    begin = 0
    for block in FENCE.finditer(markdown):
        if block[1] not in ("python", "sh"):
            continue
        yield Part("", markdown[begin : block.start()].strip())
        yield Part(block[1], block[2].strip())
        begin = block.end()
    yield Part("", markdown[begin:].strip())


def split_pages(*pages: str) -> list[Part]:
    """Return the parts of some pages of docs/ that are not empty."""
    texts = ((ROOT / "docs" / f"{page}.md").read_text() for page in pages)
    return [part for text in texts for part in split_page(text) if part.text]


def build_notebook(parts: list[Part]) -> NotebookNode:
    """Return a notebook with a cell for each part."""
    cells = [_cell(part) for part in parts]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def _cell(part: Part) -> NotebookNode:
    if part.language == "python":
        return v4.new_code_cell(part.text)
    if part.language == "sh":
        return v4.new_code_cell(f"%%bash -e\n{part.text}")
    text = ONLY_ON_SITE.sub("", part.text + "\n").strip()
    return v4.new_markdown_cell(LINK.sub(lambda link: posixpath.normpath(f"../{link[1]}"), text))


def notebook_texts() -> dict[str, str]:
    """Return the text of each notebook by its path in docs/."""
    return {
        f"notebooks/{page}.ipynb": nbformat.writes(build_notebook(split_pages(page))) + "\n" for page in PAGES
    }
