"""Kill commands at random times, disturb their machine, repeat them, and compare the results.

    python benchmarks/soak.py [--seconds 600] [--seed 0] [--cases run,sweep,import,flip] [--write DOCUMENT]

Each cycle starts a command in a new process and kills it after a random time: the main process, one of its
workers, the first worker before it has started, Python's resource tracker, or all of them. Some attempts have
a slow disk or a clock that jumps; others find the disk full or read-only. The same command is then repeated
until it is done. Its result must equal that of an undisturbed execution: the same final model, each round
once, no temporary files, no traceback. Commands are forked from this process, which has imported torch, so
that most of the time is spent inside them.

Between these cycles, the contracts of `soak_contracts` are checked: bits of files flip, two models meet in
one directory, and models have hidden state. A command then gives the same result, or ends with exit code 1 or
2 and one line.

The last line is `N kills, M faults, D differences`. The exit code is 1 if there are differences. With
`--write`, the result replaces the text between the markers of the document.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType

import soak_cases
import soak_contracts
from soak_cases import Case, Result
from soak_contracts import Contract
from soak_faults import Disk, jumping_clock, slow_disk
from speed.memory import process_tree
from speed.origin import MarkedBlock, describe_origin, measurement_origin

PATIENCE = 120.0  # seconds after which a command counts as hanging
TARGETS = ("main", "worker", "all")
WITH_WORKERS = (*TARGETS, "first worker", "tracker")
REPLACED = ("worker", "first worker", "tracker")  # the command itself goes on


class Child:
    """A command in a process group of its own."""

    def __init__(self, run: Callable[[], object], log: Path) -> None:
        self._log = log
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            sys.modules["__main__"] = ModuleType("__main__")  # workers would import this file
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            _exit_with_code_of(run)
        with suppress(OSError):
            os.setpgid(self.pid, self.pid)
        self.exit_code: int | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process. Return whether it has ended."""
        deadline = time.monotonic() + seconds
        while self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(0.002)
        return True

    def children(self, tracker: bool = False) -> list[int]:
        """Return the workers, or the process that tracks resources for Python."""
        pids = (pid for pid in process_tree(self.pid) if pid != self.pid)
        return [pid for pid in pids if _is_tracker(pid) == tracker]

    def kill(self, target: str, generator: random.Random) -> bool:
        """Kill the main process, one child or all processes. Return whether there was one to kill."""
        if target in REPLACED:
            pids = self.children(target == "tracker")
            if not pids:
                return False
            with suppress(ProcessLookupError):
                os.kill(generator.choice(pids), signal.SIGKILL)
            return True
        if target == "all":
            os.killpg(self.pid, signal.SIGKILL)
        else:
            os.kill(self.pid, signal.SIGKILL)
        self.wait(PATIENCE)
        return True

    def end(self) -> None:
        """Kill what is left of the group. Workers of a killed process end by themselves, but later."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def is_refused(self) -> bool:
        """Whether the command has ended with exit code 1 or 2 and one line, without a traceback."""
        lines = [line for line in self.output().splitlines() if line.startswith(("error: ", "failed: "))]
        return self.exit_code in (1, 2) and len(lines) == 1 and "Traceback" not in self.output()

    def output(self) -> str:
        return self._log.read_text(errors="replace")


def _is_tracker(pid: int) -> bool:
    """Whether a process only tracks resources for Python; it belongs to no command."""
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def _exit_with_code_of(run: Callable[[], object]) -> None:
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Soak:
    """Disturbs commands until the time is over."""

    def __init__(self, scratch: Path, seed: int, seconds: float) -> None:
        self._scratch, self._random = scratch, random.Random(seed)
        self._deadline = time.monotonic() + seconds
        self._expected: dict[str, tuple[Result, float]] = {}
        self._references: dict[str, tuple[Path, Result | None]] = {}
        self.kills, self.faults = Counter[str](), Counter[str]()
        self.differences = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def cycle(self, case: Case) -> None:
        """Run one case with several kills and faults, and compare its result."""
        expected, duration = self._undisturbed(case)
        disk = Disk(self._scratch / "disk")
        log = self._scratch / "log.txt"
        try:
            for attempt in range(self._random.randint(6, 14)):
                if self.is_over and attempt:
                    break
                self._disturb(case, disk, log, duration)
            child = Child(lambda: case.run(disk.path), log)
            if not child.wait(PATIENCE):
                self._report(case, "hangs", child)
            elif child.exit_code:
                self._report(case, f"exits with {child.exit_code}", child)
            elif (result := case.result(disk.path)) != expected:
                self._report(case, f"gives another result: {_first_difference(expected, result)}", child)
            child.end()
        finally:
            disk.close()
            shutil.rmtree(self._scratch / "disk", ignore_errors=True)

    def check(self, contract: Contract) -> None:
        """Check that a command on a disturbed directory gives the result of its reference or is refused."""
        template, expected = self._reference(contract)
        for _ in range(contract.repeats):
            out = self._copy(template)
            what = contract.disturb(out, self._random)
            self.faults[contract.fault] += 1
            child = self._run(partial(contract.run, out))
            if child.exit_code is None:
                self._report(contract, f"hangs after {what}", child)
            elif child.exit_code == 0 and contract.result(out) != expected:
                reason = _first_difference(expected or {}, contract.result(out))
                self._report(contract, f"gives another result after {what}: {reason}", child)
            elif child.exit_code and not child.is_refused():
                self._report(contract, f"is not refused with one line after {what}", child)
            child.end()

    def _reference(self, contract: Contract) -> tuple[Path, Result | None]:
        """Return the prepared directory and the result of the reference; None if the reference is refused."""
        if contract.name not in self._references:
            template = self._scratch / "templates" / str(len(self._references))
            template.mkdir(parents=True)
            child = self._run(partial(contract.prepare, template))
            if child.exit_code:
                raise SystemExit(f"{contract.name} cannot be prepared:\n{child.output()}")
            out = self._copy(None if contract.reference else template)
            child = self._run(partial(contract.reference or contract.run, out))
            expected = None if child.exit_code else contract.result(out)
            if child.exit_code and not (contract.reference and child.is_refused()):
                self._report(contract, "fails without disturbance", child)
            self._references[contract.name] = template, expected
        return self._references[contract.name]

    def _copy(self, template: Path | None) -> Path:
        """Return a new directory, always in the same place, because pages contain it."""
        out = self._scratch / "contract"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(template, out) if template else out.mkdir()
        return out

    def _run(self, run: Callable[[], object]) -> Child:
        child = Child(run, self._scratch / "log.txt")
        child.wait(PATIENCE)
        return child

    def _undisturbed(self, case: Case) -> tuple[Result, float]:
        """Return the result and the duration of an undisturbed execution; it runs once per case."""
        if case.name not in self._expected:
            out = self._scratch / "undisturbed" / case.name
            out.mkdir(parents=True)
            began = time.monotonic()
            child = Child(lambda: case.run(out), self._scratch / "log.txt")
            if not child.wait(PATIENCE) or child.exit_code:
                raise SystemExit(f"{case.name} fails without disturbance:\n{child.output()}")
            child.end()
            self._expected[case.name] = case.result(out), time.monotonic() - began
        return self._expected[case.name]

    def _disturb(self, case: Case, disk: Disk, log: Path, duration: float) -> None:
        """Start the command once, with a kill at a random time or with a disk that refuses to write."""
        seed, kind = self._random.random(), self._random.random()
        if kind < 0.1 and disk.is_mounted:
            with disk.read_only():
                self._expect_failure(case, Child(lambda: case.run(disk.path), log), "read-only disk")
            return
        slow, jumps = kind > 0.7, kind > 0.85

        def run() -> None:
            if slow:
                slow_disk(random.Random(seed))
            if jumps:
                jumping_clock(disk.path, random.Random(seed))
            case.run(disk.path)

        self.faults["slow disk"] += slow
        self.faults["clock jumps"] += jumps
        child = Child(run, log)
        target = self._random.choice(WITH_WORKERS if case.has_workers else TARGETS)
        if target == "first worker":
            while not child.wait(0.0) and not child.children():
                time.sleep(0.002)
        ended = child.wait(0.0 if target == "first worker" else 0.7 * duration * self._random.random() ** 2)
        if not ended and kind < 0.25 and disk.is_mounted:
            disk.fill()
            self._expect_failure(case, child, "full disk")
            disk.free()
            return
        if not ended:
            self._kill(case, child, target)
        if child.exit_code is not None and child.exit_code >= 0:
            self._check_output(case, child)
        child.end()

    def _kill(self, case: Case, child: Child, target: str) -> None:
        if not child.kill(target, self._random):
            target = "main"  # there is no worker
            child.kill(target, self._random)
        self.kills[target] += 1
        if target in REPLACED and not child.wait(PATIENCE):
            self._report(case, f"hangs after the death of the {target}", child)
        elif target in REPLACED and child.exit_code:
            self._report(case, f"exits with {child.exit_code} after the death of the {target}", child)

    def _expect_failure(self, case: Case, child: Child, fault: str) -> None:
        """Wait for a command that cannot write. It may have written everything before."""
        self.faults[fault] += 1
        if not child.wait(PATIENCE):
            self._report(case, f"hangs on a {fault}", child)
        self._check_output(case, child)
        child.end()

    def _check_output(self, case: Case, child: Child) -> None:
        """A command that ends by itself shows no traceback."""
        if "Traceback" in child.output():
            self._report(case, "shows a traceback", child)

    def _report(self, case: Case | Contract, problem: str, child: Child) -> None:
        self.differences += 1
        print(f"DIFFERENT: {case.name} {problem}\n{child.output()}", flush=True)

    def details(self) -> str:
        """Return the number of kills and faults of each kind."""
        parts = [f"{n} of {name}" for name, n in self.kills.items()]
        parts += [f"{n} with {name}" for name, n in self.faults.items()]
        return f"kills and faults: {', '.join(parts)}"

    def summary(self) -> str:
        kills, faults = sum(self.kills.values()), sum(self.faults.values())
        return f"{kills} kills, {faults} faults, {self.differences} differences"


def _first_difference(expected: Result, result: Result) -> str:
    for key in {**expected, **result}:
        if expected.get(key) != result.get(key):
            return f"{key}: expected {str(expected.get(key))[:300]}, found {str(result.get(key))[:300]}"
    return "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--cases", default="", metavar="A,B", help="words in the names of cases; default: all"
    )
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="write the result there")
    options = parser.parse_args()
    block = MarkedBlock(options.write, "soak") if options.write else None
    words = [word for word in options.cases.split(",") if word]
    families = [
        [case for case in family if not words or any(word in case.name for word in words)]
        for family in (soak_cases.CASES, *soak_contracts.FAMILIES)
    ]
    if not any(families):
        parser.error(f"no case has {options.cases!r} in its name")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["FEDOPT_DATA"] = str(Path(scratch) / "cache")
        soak = Soak(Path(scratch), options.seed, options.seconds)
        selected = (family[n % len(family)] for n in itertools.count() for family in families if family)
        for number, case in enumerate(selected, start=1):
            if soak.is_over:
                break
            soak.check(case) if isinstance(case, Contract) else soak.cycle(case)
            print(f"{number}: {case.name}: {soak.summary()}", flush=True)
    print(soak.details())
    if block:
        origin = f"{describe_origin(measurement_origin())}, {options.seconds:.0f} seconds."
        block.write([origin, "", f"- {soak.details()}", f"- {soak.summary()}"])
    print(soak.summary())
    return 1 if soak.differences else 0


if __name__ == "__main__":
    sys.exit(main())
