"""Coverage-guided fuzzing of the readers with atheris: `make fuzz`.

Each reader of `tests/support/fuzz*_targets.py` runs in a process of its own, with limits on memory and time.
It starts from a valid file and from damaged ones. An input that fails is written to `fuzz/READER/`; turn it
into a test in `tests/data/test_fuzz_findings.py`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
MEGABYTES = 1024  # of resident memory, per reader
SECONDS_PER_INPUT = 20
MAX_LENGTH = 100_000  # bytes of an input


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers of data files.")
    parser.add_argument("--seconds", type=int, default=60, help="time for each reader")
    parser.add_argument("--reader", help="fuzz only this reader")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # reader and directory, in a new process
    arguments, rest = parser.parse_known_args()
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]
    if arguments.run:
        fuzz(arguments.run[0], Path(arguments.run[1]), rest)
    names = [arguments.reader] if arguments.reader else list(targets())
    failures = [name for name in names if not start(name, arguments.seconds)]
    print(f"{len(names)} readers, {len(failures)} failures{': ' if failures else ''}{', '.join(failures)}")
    return int(bool(failures))


def targets() -> dict[str, Any]:
    """Return the readers of data files and of run directories."""
    from fuzz_run_targets import RUN_TARGETS
    from fuzz_targets import TARGETS

    return {**TARGETS, **RUN_TARGETS}


def start(name: str, seconds: int) -> bool:
    """Fuzz one reader in a new process. Return whether no input failed."""
    findings = ROOT / "fuzz" / name
    findings.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", f"-timeout={SECONDS_PER_INPUT}"]
    limits += [f"-max_len={MAX_LENGTH}", f"-artifact_prefix={findings}/", "-print_final_stats=1"]
    with tempfile.TemporaryDirectory(prefix="fedopt-fuzz-") as scratch:
        command = [sys.executable, __file__, "--run", name, scratch, *limits]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    runs = re.search(r"number_of_executed_units: *(\d+)", done.stderr)
    print(f"{name:<16} {runs[1] if runs else '?':>8} inputs  {'ok' if done.returncode == 0 else 'FAILED'}")
    if done.returncode != 0:
        print("\n".join(done.stderr.splitlines()[-30:]))
    elif not any(findings.iterdir()):
        findings.rmdir()
    return done.returncode == 0


def fuzz(name: str, scratch: Path, options: list[str]) -> NoReturn:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["fedopt.data"]):
        TARGETS = targets()

        import fedopt.data.readers.tabular  # noqa: F401  # otherwise imported after the instrumentation
    target, corpus = TARGETS[name], scratch / "corpus"
    corpus.mkdir()
    seed = target.seed(scratch)
    for number, content in enumerate([seed, seed[: len(seed) // 2], seed.replace(b"\0", b"\xff", 3)]):
        (corpus / str(number)).write_bytes(content)
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda content: target.run(content, scratch))
    atheris.Fuzz()
    raise AssertionError("atheris ends the process")


if __name__ == "__main__":
    sys.exit(main())
