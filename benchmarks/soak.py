"""Kill commands at random times, disturb their machine, repeat them, and compare the results.

    python benchmarks/soak.py [--seconds 600] [--seed 0] [--cases run,workers,sweep,import] [--write DOCUMENT]

Each cycle starts a command in a new process and kills it after a random time: the main process, one of its
workers, or all of them. Some attempts have a slow disk or a clock that jumps; others find the disk full or
read-only. The same command is then repeated until it is done. Its result must equal that of an undisturbed
execution: the same final model, each round once, no temporary files, no traceback. Commands are forked from
this process, which has imported torch, so that most of the time is spent inside them.

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
from pathlib import Path
from types import ModuleType

import soak_cases
from soak_cases import Case, Result
from soak_faults import Disk, jumping_clock, slow_disk

from fedopt.bench.environment import describe_origin, measurement_origin
from fedopt.bench.marked_block import MarkedBlock
from fedopt.bench.memory import process_tree

PATIENCE = 120.0  # seconds after which a command counts as hanging
TARGETS = ("main", "worker", "all")


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

    def kill(self, target: str, generator: random.Random) -> bool:
        """Kill the main process, one worker or all processes. Return whether there was one to kill."""
        workers = [pid for pid in process_tree(self.pid) if pid != self.pid and not _is_tracker(pid)]
        if target == "worker":
            if not workers:
                return False
            with suppress(ProcessLookupError):
                os.kill(generator.choice(workers), signal.SIGKILL)
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
        ended = child.wait(0.7 * duration * self._random.random() ** 2)
        if not ended and kind < 0.25 and disk.is_mounted:
            disk.fill()
            self._expect_failure(case, child, "full disk")
            disk.free()
            return
        if not ended:
            self._kill(case, child)
        if child.exit_code is not None and child.exit_code >= 0:
            self._check_output(case, child)
        child.end()

    def _kill(self, case: Case, child: Child) -> None:
        target = self._random.choice(TARGETS)
        if not child.kill(target, self._random):
            target = "main"  # there is no worker
            child.kill(target, self._random)
        self.kills[target] += 1
        if target == "worker" and not child.wait(PATIENCE):
            self._report(case, "hangs after the death of a worker", child)

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

    def _report(self, case: Case, problem: str, child: Child) -> None:
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
    cases = [case for case in soak_cases.CASES if not words or any(word in case.name for word in words)]
    if not cases:
        parser.error(f"no case has {options.cases!r} in its name")
    with tempfile.TemporaryDirectory() as scratch:
        soak = Soak(Path(scratch), options.seed, options.seconds)
        for number, case in enumerate(itertools.cycle(cases), start=1):
            if soak.is_over:
                break
            soak.cycle(case)
            print(f"{number}: {case.name}: {soak.summary()}", flush=True)
    print(soak.details())
    if block:
        origin = f"{describe_origin(measurement_origin())}, {options.seconds:.0f} seconds."
        block.write([origin, "", f"- {soak.details()}", f"- {soak.summary()}"])
    print(soak.summary())
    return 1 if soak.differences else 0


if __name__ == "__main__":
    sys.exit(main())
