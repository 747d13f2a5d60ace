"""Every `python` and `sh` block of the guides runs, from top to bottom, with a time limit.

A page with a notebook is executed as this notebook. The other guides share one kernel, which starts slowly.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from generators.notebooks import PAGES, Part, build_notebook, split_page, split_pages
from nbclient import NotebookClient

OTHERS = ("index", "tuning", "operations")
SLOW = ("reproducing",)
SECONDS = 180  # of a cell; a cell takes some seconds of an idle core
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    "pages",
    [
        *((page,) for page in PAGES),
        OTHERS,
        # trains for a minute; tests/reproduction makes the same artifact with fewer rounds
        pytest.param(SLOW, marks=pytest.mark.slow),
    ],
    ids="+".join,
)
def test_snippets_of_guide_run_from_top_to_bottom(
    pages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Path(sys.executable).parent  # with `fedopt`
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    parts = split_pages(*pages)
    notebook = build_notebook(parts)
    executed = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert len(cells) == sum(bool(part.language) for part in parts) > 0
    assert all(cell.execution_count for cell in cells)
    python = [cell for cell in cells if not cell.source.startswith("%%bash")]
    assert [output.text for cell in python for output in cell.outputs if output.get("name") == "stderr"] == []


def test_notebook_shows_progress_as_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    code = "import fedopt\nresult = fedopt.run('synthetic_lr', rounds=3, config={'client.steps': 1})"
    executed = NotebookClient(
        build_notebook([Part("python", code)]), timeout=SECONDS, kernel_name="python3"
    ).execute()
    texts = [output.data["text/plain"].strip() for output in executed.cells[0].outputs]
    assert [text for text in texts if text.startswith("fedavg 3/3  accuracy ")] == texts[:1]
    assert texts[1:] == ["10 of 30 clients per round · 610 parameters · 3 rounds"]


def test_every_guide_with_snippets_is_executed() -> None:
    found = {
        path.stem for path in DOCS.glob("*.md") if any(part.language for part in split_page(path.read_text()))
    }
    assert found == {*PAGES, *OTHERS, *SLOW}


def test_own_algorithm_has_at_most_thirty_lines() -> None:
    blocks = [part.text for part in split_pages("algorithm-2") if "def fedtop" in part.text]
    assert len(blocks) == 1 and len(re.findall(r"^\s*\S", blocks[0], re.MULTILINE)) <= 30
