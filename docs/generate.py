"""Generate the parts of the documents between `<!-- name -->` and `<!-- /name -->` from the code.

python docs/generate.py            # update the documents
python docs/generate.py --check    # exit with 1 if a document is out of date
"""

from __future__ import annotations

import sys

from generators.algorithm_lines import list_lines, quote_client, quote_server
from generators.markdown import ROOT, embed_example
from generators.reference import example_configuration, list_commands, list_keys
from generators.registries import describe_other_tasks, describe_paper_tasks, list_algorithms, list_tasks

GENERATORS = {
    "settings": describe_paper_tasks,
    "other tasks": describe_other_tasks,
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


def main() -> None:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        before, after = path.read_text(), update(path.read_text())
        if before != after:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        raise SystemExit(f"out of date: {', '.join(stale)}; run python docs/generate.py")


if __name__ == "__main__":
    main()
