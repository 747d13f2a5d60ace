"""Repeat entries on another CPU type.

The rounding of sums depends on the instructions and the model of the CPU, which are its type here. Checksums
are compared on one CPU type only.
`python -m claims cpu` runs entries that were computed on another type again on this machine. Their results
are stored in `results_by_cpu/TYPE`, and the page compares the values.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from claims.plan import plan_entries
from claims.results import RESULTS_BY_CPU, EntryResult, load_results, load_results_by_cpu, store_result
from claims.runner import Log, execute, has_data, lock_entry, make_result, this_cpu_type
from fedopt_paper.published import OPTIMIZERS

# Long runs with three seeds whose values are compared.
_TAGS = {
    "fedadagrad": "client2_server0.5_tau-5",
    "fedadam": "client2_server-0.5_tau-5",
    "fedyogi": "client2_server-0.5_tau-5",
    "fedavgm": "client2_server-1.5",
    "fedavg": "client2_server0",
}
COMPARED = {
    "tags of real questions": {m: f"so_lr/full/{m}_{_TAGS[m]}" for m in OPTIMIZERS},
    "digits, small network": {m: f"writers/seeds/constant/{m}" for m in OPTIMIZERS},
}


def is_repeated(name: str) -> bool:
    """Return whether `python -m claims cpu` runs an entry."""
    return name.startswith("repeat/") or any(name in names.values() for names in COMPARED.values())


def run_on_this_cpu(work: Path, pattern: str, log: Log, directory: Path = RESULTS_BY_CPU) -> int:
    """Run entries again that another CPU type has computed. Return the number of failures."""
    here, results, failures = this_cpu_type(), load_results(), 0
    for entry in plan_entries(results):
        stored = results.get(entry.name)
        if stored is None or not is_repeated(entry.name) or not re.search(pattern, entry.name):
            continue
        out = f"cpu/{here}/{entry.name}"
        known = load_results_by_cpu(directory).get(here, {}).get(entry.name)
        if stored.cpu_type == here or (known and known.command == shlex.join(entry.command(out))):
            log(f"{entry.name}: a result of {here} is stored")
            continue
        if not has_data(entry, work, log):
            continue
        lock = lock_entry(out, work)
        if lock is None:
            log(f"{entry.name}: another runner works on it")
            continue
        try:
            log(f"{entry.name}: {shlex.join(entry.command(out))}")
            attempt = execute(entry, work, out)
            result: EntryResult = make_result(entry, work, attempt, out)
            log(f"{entry.name}: {attempt.outcome}, {attempt.cpu_seconds:.0f} s of CPU time")
            if result.complete:
                store_result(result, directory / here)
            failures += not result.complete
        finally:
            os.close(lock)
    return failures
