"""Shared fixtures. Worker processes and browsers start slowly, so a session starts them once."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chromium import HOW_TO_INSTALL, find_programs, start_browser
from typed import FinishedRun, SeededRuns, run_small
from worker_pool import Pool

from fedopt.engine.executors.processes import Processes
from fedopt.runs.records import RunRecord

# A process started in the background ignores interrupts, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
collect_ignore = ["conftest.py"]  # has no doctests, and src has a module of the same name
torch.set_num_threads(1)  # more threads would compete for the same cores

# Files with tests that take ten seconds or more. They start first, so that no process is alone at the end.
LONG = (
    "test_package.py",
    "test_snippets.py",
    "test_compiled.py",
    "test_trial_pool.py",
    "test_stacked_sweeps.py",
    "test_killed_command.py",
    "test_soak.py",
)

# In tests/support.
pytest_plugins = [
    "bench_fixtures",
    "data_fixtures",
    "group_scheduling",
    "object_store",
    "ray_fixtures",
    "tuning_fixtures",
    "wheel_environment",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)  # keeps the order otherwise


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """`pool(n)` returns an executor with n workers, shared by all tests.

    Executors with one and two workers use the workers of the executor with three. A test that kills workers
    must take all three, because only that executor keeps the replacements.
    """
    three = Processes(3)

    def borrow(count: int) -> Processes:
        if count == 3:
            return three
        executor = Processes(count)
        executor._workers = three._workers[:count]
        return executor

    from small import run

    run(three, settings={"rounds": 1})
    yield borrow
    three.close()


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of three rounds with the checkpoints of rounds 2 and 3; read-only."""
    path = tmp_path_factory.mktemp("finished") / "run"
    done = run_small(path)
    assert done.code == 0, done.err
    return FinishedRun(path, json.loads(done.out))


@pytest.fixture
def run_copy(finished_run: FinishedRun, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may damage."""
    return shutil.copytree(finished_run.path, tmp_path / "run")


@pytest.fixture(scope="session")
def seeded_runs(tmp_path_factory: pytest.TempPathFactory) -> SeededRuns:
    """Runs of one algorithm with the seeds 1 and 2; read-only."""
    path = tmp_path_factory.mktemp("seeds") / "out"
    return SeededRuns(path, run_small(path, "--seeds", "1:3", rounds=2))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser."""
    pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    programs = find_programs()
    if programs is None:
        pytest.skip(HOW_TO_INSTALL)
    session = start_browser(programs, tmp_path_factory.mktemp("chromium"))
    yield session
    session.quit()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """State how to install a browser if tests were skipped without one."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(HOW_TO_INSTALL in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were skipped. {HOW_TO_INSTALL}", yellow=True)


@pytest.fixture
def browser(chromium: Any) -> Any:
    """The browser with an empty page, default settings and empty logs."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.get_log("performance")
    return chromium


@pytest.fixture
def three(tmp_path: Path) -> list[RunRecord]:
    """The last evaluations are 0.70, 0.77 and 0.85, and the target is 0.765.

    The first run does not reach it, the second reaches it only at the last evaluation, the third at round 2.
    """
    from written import MB, write_run

    runs, twice = tmp_path / "runs", 20 * MB
    return [
        write_run(runs / "a", "fedavg", (0.1, 0.5, 0.7), value=0.60, train_loss=0.9, seconds=3),
        write_run(runs / "b", "scaffold", (0.1, 0.6, 0.77), value=0.66, seconds=5, per_round=twice),
        write_run(runs / "c", "fedyogi", (0.1, 0.78, 0.85), value=0.80, train_loss=0.5, seconds=4),
    ]
