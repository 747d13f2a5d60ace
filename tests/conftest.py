"""What several test modules share; processes and browsers cost seconds to start, so a session has one set."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedopt.engine.executors.processes import Processes
from fedopt.runs.records import RunRecord

# Started in the background of a script, this process ignores interrupts, and commands would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)  # the session has its share of the cores; more threads would wait for each other

Pool = Callable[[int], Processes]


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """`pool(n)` is an executor of n workers, for one test after another.

    Executors of one and two workers borrow those of the one with three. A test that kills workers must
    take all three: only there a replacement stays.
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
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser without a window."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    for flag in (flags + "disable-component-update disable-sync").split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield session
    session.quit()


@pytest.fixture
def browser(chromium: Any) -> Any:
    """The browser with nothing left of what was there before."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.get_log("performance")
    return chromium


@pytest.fixture
def three(tmp_path: Path) -> list[RunRecord]:
    """Best final value 0.80, so the target is 0.72: never met, met exactly at round 4, met at round 2."""
    from written import MB, write_run

    runs, twice = tmp_path / "runs", 20 * MB
    return [
        write_run(runs / "a", "fedavg", (0.1, 0.5, 0.7), value=0.60, train_loss=0.9, seconds=3),
        write_run(runs / "b", "scaffold", (0.1, 0.6, 0.72), value=0.66, seconds=5, per_round=twice),
        write_run(runs / "c", "fedyogi", (0.1, 0.75, 0.85), value=0.80, train_loss=0.5, seconds=4),
    ]
