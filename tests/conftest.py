"""Worker processes cost seconds to start, so the whole session shares three of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
import torch

from fedopt.engine.processes import Processes

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
