"""Run what is missing, compare results, write the page."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from pathlib import Path

from claims.plan import plan_entries
from claims.results import load_results
from claims.runner import collect, is_complete, run_missing, verify

COMMANDS = ("list", "run", "collect", "verify", "cpu", "estimate", "baselines", "independent", "page")


def main() -> int:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m claims", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--only", default="", help="regular expression for the names of entries")
    parser.add_argument("--work", type=Path, default=Path("runs/claims"), help="directory of data and runs")
    parser.add_argument("--commit", default="", help="collect: the version that computed the runs")
    parser.add_argument("--files", type=Path, help="independent: directory of the downloaded files")
    options = parser.parse_args()
    if options.command == "independent" and options.files is None:
        parser.error("independent needs --files DIR, the directory of the downloaded files")
    options.work.mkdir(parents=True, exist_ok=True)
    if options.command == "page":
        from claims.page import write_page  # imports matplotlib

        print(write_page(load_results()))
        return 0
    if options.command == "estimate":
        from claims.times import store_estimates

        print(store_estimates(load_results(), options.work))
        return 0
    if options.command == "baselines":
        from claims.baselines import store_baselines

        print(store_baselines(options.work))
        return 0
    if options.command == "independent":
        from claims.agreement import run_missing_comparisons

        return 1 if run_missing_comparisons(load_results(), options.files, _log) else 0
    if options.command == "cpu":
        from claims.cpu_types import run_on_this_cpu

        return 1 if run_on_this_cpu(options.work, options.only, _log) else 0
    if options.command == "run":
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled as Ctrl+C
        return 1 if run_missing(options.work, options.only, _log) else 0
    results = load_results()
    entries = [e for e in plan_entries(results) if re.search(options.only, e.name)]
    if not entries:
        parser.error(f"no entry matches {options.only!r}; `list` shows all names")
    for entry in entries:
        if options.command == "list":
            print(f"{'done' if is_complete(entry, results) else 'missing':8}{entry.name}")
        elif options.command == "collect" and not is_complete(entry, results):
            result = collect(entry, options.work, None, options.commit)
            _log(f"{entry.name}: {len(result.done)} of {len(result.records)} runs are done")
    if options.command == "verify":
        known = [entry for entry in entries if entry.name in results]
        for entry in entries:
            if entry not in known:
                _log(f"{entry.name}: no stored result to compare with")
        return 0 if known and all([verify(entry, options.work, _log) for entry in known]) else 1
    return 0


def _log(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
