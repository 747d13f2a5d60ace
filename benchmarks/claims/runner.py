"""Run the entries of the plan that have no complete result, one after another.

Several runners may work on one directory, for example one per core: an entry that another runner has locked
is skipped. An interrupted entry is resumed by the same command. Limits count CPU time, so a paused runner
loses nothing. Ctrl+C and SIGTERM end the command and store the runs that it has completed. A reproduction
continues after them on any machine; other commands need the checkpoints in their directories.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import torch

import fedopt
from claims.entry import DATASETS, Entry
from claims.plan import plan_entries
from claims.restore import ENDED, restore_runs
from claims.results import (
    EntryResult,
    cpu_type,
    load_results,
    load_results_by_cpu,
    read_records,
    store_result,
)
from fedopt.errors import RunDirectoryError
from fedopt.files import lock_directory
from fedopt.processor import processor_model
from fedopt.reports import parse_seeds
from fedopt.runs.records import RunRecord

PROGRAM = Path(sys.executable).parent / "fedopt"
TASKS_PATH = Path(__file__).parents[1]  # of the tasks of the claims; commands run in another directory
Log = Callable[[str], None]


class Attempt(NamedTuple):
    """How a command ended."""

    code: int
    cpu_seconds: float

    @property
    def outcome(self) -> str:
        if self.code == 0:
            return "done"
        return "CPU time limit" if self.code == -signal.SIGXCPU else f"exit code {self.code}"


class Interrupted(KeyboardInterrupt):
    """Ctrl+C or SIGTERM has ended a command."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__()
        self.attempt = attempt


def run_missing(work: Path, pattern: str, log: Log) -> int:
    """Run all entries whose names match `pattern` and that are not complete. Return the number of failures.

    The plan is read again after every entry, because results add entries to it.
    """
    tried: set[str] = set()
    failures = 0
    while entry := _next_entry(work, pattern, tried, log):
        tried.add(entry.name)
        lock = lock_entry(entry.out, work)
        if lock is None:
            log(f"{entry.name}: another runner works on it")
            continue
        try:
            log(f"{entry.name}: {shlex.join(entry.command())}")
            commit = current_commit()  # before the command: files may change while it runs
            if restored := restore_stored_runs(entry, work):
                log(f"{entry.name}: {restored} runs restored from stored results")
            try:
                attempt = execute(entry, work)
            except Interrupted as interruption:
                collect(entry, work, interruption.attempt, commit)
                log(f"{entry.name}: interrupted; its ended runs are stored")
                raise
            collect(entry, work, attempt, commit)
            failures += attempt.code != 0
            log(f"{entry.name}: {attempt.outcome}, {attempt.cpu_seconds:.0f} s of CPU time")
        finally:
            os.close(lock)
    return failures


def _next_entry(work: Path, pattern: str, tried: set[str], log: Log) -> Entry | None:
    results = load_results()
    for entry in plan_entries(results):
        if entry.name in tried or not re.search(pattern, entry.name) or is_complete(entry, results):
            continue
        if not has_data(entry, work, log):
            tried.add(entry.name)
            continue
        return entry
    return None


def has_data(entry: Entry, work: Path, log: Log) -> bool:
    """Return whether the data of an entry has been imported. If not, log the command that imports it."""
    if entry.data is None or (work / entry.data).is_dir():
        return True
    store, dataset = work / entry.data, DATASETS[entry.data]
    log(f"{entry.name}: {store} is missing; run `fedopt data import {dataset} PATH --to {store}`")
    return False


def is_complete(entry: Entry, results: dict[str, EntryResult]) -> bool:
    """Return whether the stored result of an entry is complete and belongs to the same command."""
    result = results.get(entry.name)
    return result is not None and result.complete and result.command == shlex.join(entry.command())


def lock_entry(out: str, work: Path) -> int | None:
    """Lock the directory of an entry. None if another runner has locked it."""
    directory = work / "locks" / out.replace("/", "-")
    directory.mkdir(parents=True, exist_ok=True)
    with suppress(RunDirectoryError):
        return lock_directory(directory, "runner of the claims")
    return None


def restore_stored_runs(entry: Entry, work: Path) -> int:
    """Restore the runs of a reproduction that are stored but not in its directory. Return their number."""
    if entry.arguments[0] != "reproduce":
        return 0
    results = load_results()
    sharing = [e for e in plan_entries(results) if e.out == entry.out and e.name in results]
    return sum(restore_runs(results[e.name], work / e.out) for e in sharing)


def execute(entry: Entry, work: Path, out: str = "") -> Attempt:
    """Run the command of an entry with its limit of CPU time. Its output is appended to a log file."""
    log_file = _log_file(entry, work)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log_file, "ab") as output:
        process = _start(entry, work, out, output)
        try:
            if entry.kill_at:
                _kill_at_round(process, work / (out or entry.out), entry.kill_at)
                process = _start(entry, work, out, output)
            return Attempt(process.wait(), _used_since(before))
        except KeyboardInterrupt as interruption:
            process.terminate()  # it writes a checkpoint
            raise Interrupted(Attempt(process.wait(), _used_since(before))) from interruption


def _used_since(before: resource.struct_rusage) -> float:
    """Return the CPU time of processes that ended after `before` was read."""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def _log_file(entry: Entry, work: Path) -> Path:
    return work / "logs" / f"{entry.name.replace('/', '-')}.log"


def _start(entry: Entry, work: Path, out: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [str(PROGRAM), *entry.command(out)[1:]]
    paths = [str(TASKS_PATH), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        command,
        cwd=work,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,  # Ctrl+C reaches the runner only, which forwards it once
    )
    seconds = int(entry.cpu_minutes * 60)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds + 60))
    return process


def _kill_at_round(process: subprocess.Popen[bytes], directory: Path, round: int) -> None:
    """Kill a run without warning as soon as it has recorded a round."""
    metrics = directory / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count('"split": "train"') >= round:
            process.kill()
            process.wait()
            return
        time.sleep(0.02)
    raise RuntimeError(f"{directory} ended with code {process.returncode} before it could be killed")


def collect(entry: Entry, work: Path, attempt: Attempt | None, commit: str = "") -> EntryResult:
    """Store the result of an entry from its directory.

    `attempt` is None for runs that were executed elsewhere: they are complete if all of them are done, except
    those of a reproduction, which may have runs that have not started. Runs that another entry with the same
    directory has stored are left out. Stored runs of the same command that have ended are kept if the
    directory does not contain them: it may be that of another machine.
    """
    results = load_results()
    sharing = [e for e in plan_entries(results) if e.out == entry.out and e.name != entry.name]
    others = [results[e.name] for e in sharing if e.name in results]
    stored = {(record.path, record.rounds) for result in others for record in result.records}
    result = make_result(entry, work, attempt, commit=commit)
    records = [r for r in result.records if (r.path, r.rounds) not in stored]
    cpu, commits = result.cpu_seconds, result.commits
    earlier = results.get(entry.name)
    if earlier and earlier.command == result.command:
        found = {record.path for record in records}
        records += [r for r in earlier.records if r.status in ENDED and r.path not in found]
        cpu = None if cpu is None else cpu + (earlier.cpu_seconds or 0.0)
        commits = list(dict.fromkeys([*earlier.commits, *commits]))
    result = result._replace(records=records, cpu_seconds=cpu, commits=commits)
    store_result(result)
    return result


def make_result(
    entry: Entry, work: Path, attempt: Attempt | None, out: str = "", commit: str = ""
) -> EntryResult:
    """Return the result of an entry from its own or another directory."""
    records = read_records(work / (out or entry.out))
    if attempt:
        # A run that diverges is a result, although its exit code is not 0.
        complete = attempt.code == 0 or _has_all_seeds(entry, records)
    else:
        ended = bool(records) and all(record.status in ENDED for record in records)
        complete = ended and entry.arguments[0] != "reproduce"
    command = shlex.join(entry.command(out))
    seconds = attempt.cpu_seconds if attempt else None
    return EntryResult(entry.name, command, [commit or current_commit()], complete, seconds, records)


def _has_all_seeds(entry: Entry, records: Sequence[RunRecord]) -> bool:
    """Whether the runs of all seeds of `fedopt run` have diverged or have all rounds."""
    if entry.arguments[0] != "run":
        return False
    rounds, seeds = int(entry.option("--rounds") or 0), entry.option("--seeds")
    expected = parse_seeds(seeds) if seeds else [int(entry.option("--seed") or 0)]
    ended = {r.info["seed"] for r in records if r.status == "diverged" or _is_done(r, rounds)}
    return set(expected) <= ended


def _is_done(record: RunRecord, rounds: int) -> bool:
    return record.status == "done" and record.rounds >= rounds


def current_commit() -> str:
    """Return the commit that is used, with "+" if files of the package or of the claims have changed."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(fedopt.__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ":/src", ":/benchmarks/claims/*.py")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def this_cpu_type() -> str:
    """Return the type of this CPU."""
    return cpu_type({"cpu": torch.backends.cpu.get_cpu_capability(), "processor": processor_model()})


def verify(entry: Entry, work: Path, log: Log) -> bool:
    """Run an entry again in a new directory and compare the checksums with the stored ones.

    A stored result whose CPU model is unknown is used if its instructions are those of this CPU.
    """
    if not has_data(entry, work, log):
        return False
    here, instructions = this_cpu_type(), torch.backends.cpu.get_cpu_capability()
    others = load_results_by_cpu()
    stored_results = [load_results()[entry.name]]
    stored_results += [others[cpu][entry.name] for cpu in others if entry.name in others[cpu]]
    by_type = {result.cpu_type: result for result in stored_results}
    known = by_type.get(here) or by_type.get(instructions)
    if known is None:
        log(f"{entry.name}: the stored checksums are from {', '.join(by_type)}; this CPU is {here}")
        return False
    out = f"verify/{entry.name}-{time.strftime('%Y%m%d%H%M%S')}"
    log(f"{entry.name}: {shlex.join(entry.command(out))}")
    attempt = execute(entry, work, out)
    if attempt.code != 0 and not read_records(work / out):
        log(f"{entry.name}: the command failed ({attempt.outcome}); see {_log_file(entry, work)}")
        return False
    stored = {(r.path, r.info.get("seed")): r.info.get("x_sha256") for r in known.done}
    found = {(r.path, r.info.get("seed")): r.info.get("x_sha256") for r in read_records(work / out)}
    different = [key for key, checksum in stored.items() if found.get(key) != checksum]
    for path, seed in different:
        log(f"{entry.name}: {path}, seed {seed}: another checksum than the stored one")
    log(f"{entry.name}: {len(stored) - len(different)} of {len(stored)} models are identical to the bit")
    if different and known.cpu_type != here:
        log(f"{entry.name}: the stored ones are from {known.cpu_type}, this CPU is {here}; compare values")
    return attempt.code == 0 and not different
