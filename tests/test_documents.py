"""The documents agree with the code."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_generated_parts_of_documents_are_up_to_date():
    process = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def test_paths_in_documents_exist():
    path_pattern = re.compile(r"`((?:src|docs|tests|examples|benchmarks)/[\w./-]+)`")
    package_pattern = re.compile(r"`((?:algorithms|engine|data|models|tasks|runs)/[\w/]+\.py)`")
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for document in [*documents, ROOT / "benchmarks" / "README.md"]:
        text = document.read_text()
        paths = [*path_pattern.findall(text), *(f"src/fedopt/{p}" for p in package_pattern.findall(text))]
        missing = [path for path in paths if not (ROOT / path).exists()]
        assert not missing, f"{document.name} names missing files: {missing}"


def test_pages_have_small_screenshots_at_three_widths():
    images = {path.name: path.stat().st_size for path in (ROOT / "docs" / "screenshots").iterdir()}
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("pages.md", "tuning.md"))
    for name in ("comparison", "sweep", "reproduction"):
        for width in (1440, 900, 390):
            assert images[f"{name}-{width}.png"] < 200_000
            assert f"screenshots/{name}-{width}.png" in pages
