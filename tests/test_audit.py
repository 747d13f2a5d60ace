"""The summary of `make audit`."""

from __future__ import annotations

import runpy
from pathlib import Path

audit = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "audit.py"))
summarize, explain_failure = audit["summarize"], audit["explain_failure"]

SAFE = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNSAFE = {"name": "pillow", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}]}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found"}


def test_vulnerability_is_listed_and_fails() -> None:
    text, code = summarize({"dependencies": [SAFE, UNSAFE, UNKNOWN]})
    assert code == 1
    assert text.splitlines() == [
        "pillow 1.0: PYSEC-1, fixed in 1.1, 2.0",
        "2 of 3 packages audited, 1 vulnerabilities",
    ]


def test_known_packages_without_vulnerabilities_succeed() -> None:
    assert summarize({"dependencies": [SAFE, UNKNOWN]}) == ("1 of 2 packages audited, 0 vulnerabilities", 0)


def test_answer_without_any_known_package_is_not_a_success() -> None:
    """A mirror without vulnerability data answers like this."""
    text, code = summarize({"dependencies": [UNKNOWN, UNKNOWN]})
    assert text.startswith("skipped: ") and code == 0


def test_network_error_is_skipped() -> None:
    text, code = explain_failure("ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed\n")
    assert text.startswith("skipped: ") and code == 0


def test_other_failure_of_pip_audit_fails() -> None:
    text, code = explain_failure("ERROR:pip_audit._cli:requirement numpy does not contain a hash\n")
    assert text.startswith("failed: ") and "numpy" in text and code == 1
    assert explain_failure("")[1] == 1
