"""Hooks of MkDocs: the version in the header, and column names in the cells of tables."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

ROOT = Path(__file__).resolve().parent.parent


def on_config(config: Any) -> Any:
    """Add the version to the name of the site, and the column names to tables."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    config.site_name = f"{config.site_name} {version}"
    config.markdown_extensions.append(ColumnNames())
    return config


class ColumnNames(Extension):
    """Gives each cell of a table the name of its column as `data-column`, for narrow screens.

    >>> from markdown import markdown
    >>> html = markdown("| key | use |\\n|---|---|\\n| a | b |", extensions=["tables", ColumnNames()])
    >>> '<td data-column="use">b</td>' in html
    True
    """

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.treeprocessors.register(_ColumnNamer(md), "column_names", 0)


class _ColumnNamer(Treeprocessor):
    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            names = ["".join(cell.itertext()) for cell in table.iter("th")]
            for row in table.iterfind("tbody/tr"):
                for name, cell in zip(names, row, strict=False):
                    cell.set("data-column", name)
