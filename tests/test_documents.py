"""What documents say is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_generated_parts_of_the_documents_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_files_and_folders_that_the_documents_name_exist():
    named = re.compile(r"`((?:src|docs|tests|examples|benchmarks)/[\w./-]+)`")
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for path in named.findall(document.read_text()):
            assert (ROOT / path).exists(), f"{document.name} names {path}, which is not there"
