"""Look up known vulnerabilities of the locked packages: `make audit`.

Exit codes: 0 no known vulnerability, or no answer from the vulnerability service; 1 vulnerabilities, or
another failure of pip-audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).parent.parent / "requirements-hashes.txt"
# In the messages of pip-audit and of the requests library.
NETWORK_ERRORS = ("Could not connect", "network may be blocking", "ConnectionError", "Timeout")
TIMEOUT = 20  # seconds to wait for the service, per request


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", str(TIMEOUT), "-r", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        text, code = explain_failure(done.stderr)
    else:
        text, code = summarize(json.loads(done.stdout))
    print(text)
    return code


def explain_failure(messages: str) -> tuple[str, int]:
    """Return why pip-audit has no result, and the exit code, which is 0 only for a network error."""
    reason = (messages.strip().splitlines() or ["no output"])[-1][:200]
    if any(words in messages for words in NETWORK_ERRORS):
        return f"skipped: the vulnerability service cannot be asked ({reason})", 0
    return f"failed: pip-audit has no result ({reason})", 1


def summarize(report: Mapping[str, Any]) -> tuple[str, int]:
    """Return the result as text, and the exit code."""
    packages = report["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return f"skipped: the vulnerability service knows none of {len(packages)} packages (offline?)", 0
    found = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version'}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    lines = [*found, f"{len(audited)} of {len(packages)} packages audited, {len(found)} vulnerabilities"]
    return "\n".join(lines), int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
