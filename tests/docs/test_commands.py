"""Every `fedopt` command in a code block of the documents has a name and options that exist.

Commands of guides are executed by test_snippets.py. Others need a cluster, a download or hours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fedopt.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "benchmarks/README.md")
DOCUMENTS = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
COMMAND = re.compile(r"^\s*(?:\$ )?(fedopt [a-z].*)$", re.MULTILINE)
UsageError = typer.BadParameter.__bases__[0]


def commands(text: str) -> Iterator[str]:
    """Yield the commands in the code blocks of a document. Long commands continue after a backslash."""
    text = text.replace("\\\n", " ")
    blocks = [block for language, block in FENCED.findall(text) if language in ("", "console", "sh", "text")]
    for block in [*blocks, *INDENTED.findall(FENCED.sub("", text))]:
        yield from COMMAND.findall(block)


def check_command(command: str) -> None:
    """Parse a command without executing it."""
    words = shlex.split(command, comments=True)[1:]
    words = [word for word in words if not word.startswith("$")]  # options in a variable
    parser, context = typer.main.get_command(app), None
    while isinstance(parser, typer.core.TyperGroup):
        context = parser.make_context("fedopt", [], parent=context, resilient_parsing=True)
        while words and words[0].startswith("-"):
            words = words[1:]
        found = parser.get_command(context, words[0])
        assert found is not None, f"no command {words[0]}"
        parser, words = found, words[1:]
    parser.make_context(parser.name, words, parent=context)


@pytest.mark.parametrize("words", ["run so_lr --turns 5", "run so_lr --rounds many", "compare so_lr"])
def test_wrong_options_are_found(words: str) -> None:
    with pytest.raises(UsageError):
        check_command(f"fedopt {words}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_can_be_parsed(document: Path) -> None:
    for command in commands(document.read_text()):
        check_command(command)


def test_commands_are_found_in_documents() -> None:
    assert sum(len(list(commands(document.read_text()))) for document in DOCUMENTS) > 40
