"""Generate notebooks, and the parts of documents between `<!-- name -->` and `<!-- /name -->`, from the code.

python docs/generate.py            # update the documents
python docs/generate.py --check    # exit with 1 if a document is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from generators.algorithm_lines import list_lines, quote_client, quote_server
from generators.markdown import ROOT, embed_example
from generators.notebooks import notebook_texts
from generators.reference import example_configuration, list_commands, list_keys
from generators.registries import describe_other_tasks, describe_paper_tasks, list_algorithms, list_tasks

GENERATORS = {
    "settings": describe_paper_tasks,
    "other tasks": describe_other_tasks,
    "own_model": lambda: embed_example("own_model.py"),
    "quickstart": lambda: embed_example("quickstart.py"),
    "my_algorithm": lambda: embed_example("my_algorithm.py"),
    "algorithms": list_algorithms,
    "tasks": list_tasks,
    "keys": list_keys,
    "example configuration": example_configuration,
    "commands": list_commands,
    "algorithm 2": list_lines,
    "client": quote_client,
    "server": quote_server,
}


def update(text: str) -> str:
    """Return `text` with all marked parts generated again."""
    for name, generate in GENERATORS.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, marker, rest = text.partition(begin)
        if marker:
            text = f"{before}{begin}{generate()}\n{end}{rest.partition(end)[2]}"
    return text


class Documents:
    """Writes documents that have changed, or only names them."""

    def __init__(self, check: bool) -> None:
        self.check = check
        self.stale: list[str] = []

    def write(self, path: Path, text: str) -> None:
        if path.is_file() and path.read_text() == text:
            return
        self.stale.append(str(path.relative_to(ROOT)))
        if not self.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def main() -> None:
    documents = Documents("--check" in sys.argv)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        documents.write(path, update(path.read_text()))
    for name, text in notebook_texts().items():  # from the pages that were written above
        documents.write(ROOT / "docs" / name, text)
    if documents.check and documents.stale:
        raise SystemExit(f"out of date: {', '.join(documents.stale)}; run python docs/generate.py")


if __name__ == "__main__":
    main()
