"""Run what is missing, compare results, write the page."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from claims.entry import Entry
from claims.plan import plan_entries
from claims.results import Results, load_results
from claims.runner import collect, is_complete, run_missing, verify


def main() -> int:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m claims", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--only", type=_pattern, default="", help="regular expression for names of entries")
    parser.add_argument("--work", type=Path, default=Path("runs/claims"), help="directory of data and runs")
    parser.add_argument("--commit", default="", help="collect: the version that computed the runs")
    parser.add_argument("--files", type=_directory, help="independent: directory of the downloaded files")
    options = parser.parse_args()
    if options.command == "independent" and options.files is None:
        parser.error("independent needs --files DIR, the directory of the downloaded files")
    if not _selected(options, load_results()):
        parser.error(f"no entry matches {options.only!r}; `list` shows all names")
    options.work.mkdir(parents=True, exist_ok=True)
    return COMMANDS[options.command](options)


def _selected(options: argparse.Namespace, results: Results) -> list[Entry]:
    """Return the entries whose names match `--only`."""
    return [entry for entry in plan_entries(results) if re.search(options.only, entry.name)]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        message = f"{text!r} is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(message) from error
    return text


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"no directory at {text}")
    return Path(text)


def _list(options: argparse.Namespace) -> int:
    results = load_results()
    for entry in _selected(options, results):
        print(f"{'done' if is_complete(entry, results) else 'missing':8}{entry.name}")
    return 0


def _run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled as Ctrl+C
    results = load_results()
    selected = _selected(options, results)
    if all(is_complete(entry, results) for entry in selected):
        _log(f"nothing to run: all {len(selected)} results are stored; `verify` repeats runs")
        return 0
    return 1 if run_missing(options.work, options.only, _log) else 0


def _collect(options: argparse.Namespace) -> int:
    results = load_results()
    for entry in _selected(options, results):
        if not is_complete(entry, results):
            result = collect(entry, options.work, None, options.commit)
            _log(f"{entry.name}: {len(result.done)} of {len(result.records)} runs are done")
    return 0


def _verify(options: argparse.Namespace) -> int:
    results = load_results()
    entries = _selected(options, results)
    known = [entry for entry in entries if entry.name in results]
    for entry in entries:
        if entry not in known:
            _log(f"{entry.name}: no stored result to compare with")
    return 0 if known and all([verify(entry, options.work, _log) for entry in known]) else 1


def _repeat_on_this_cpu(options: argparse.Namespace) -> int:
    from claims.cpu_types import run_on_this_cpu

    return 1 if run_on_this_cpu(options.work, options.only, _log) else 0


def _estimate(options: argparse.Namespace) -> int:
    from claims.times import store_estimates

    print(store_estimates(load_results(), options.work))
    return 0


def _baselines(options: argparse.Namespace) -> int:
    from claims.baselines import store_baselines

    print(store_baselines(options.work))
    return 0


def _independent(options: argparse.Namespace) -> int:
    from claims.agreement import run_missing_comparisons

    return 1 if run_missing_comparisons(load_results(), options.files, _log) else 0


def _page(options: argparse.Namespace) -> int:
    from claims.page import write_page  # imports matplotlib

    print(write_page(load_results()))
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list,
    "run": _run,
    "collect": _collect,
    "verify": _verify,
    "cpu": _repeat_on_this_cpu,
    "estimate": _estimate,
    "baselines": _baselines,
    "independent": _independent,
    "page": _page,
}


def _log(message: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
