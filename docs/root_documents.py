"""A hook of MkDocs: documents outside docs/ become pages of the site.

Links in the repository are relative to the file that contains them, so that they also work on a code host.
This hook rewrites the links that lead into or out of docs/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the documents outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page to paths inside the site."""
    return rewrite_links(markdown, page.file.src_uri)


def rewrite_links(markdown: str, page: str) -> str:
    """Replace relative links by paths from `page` to other pages.

    >>> rewrite_links("see [security](../SECURITY.md#data-files)", "architecture.md")
    'see [security](security.md#data-files)'
    >>> rewrite_links("see [reliability](docs/reliability.md)", "security.md")
    'see [reliability](reliability.md)'
    """
    folder = posixpath.dirname(SOURCES.get(page, f"docs/{page}"))

    def rewrite(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        target = PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(page) or ".")

    return LINK.sub(rewrite, markdown)
