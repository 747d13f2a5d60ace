"""The server process from which worker processes are forked.

The server imports torch and this package once. A worker starts in milliseconds, because it is a copy of the
server. This module does not import torch, so that a command can start the server before its own imports.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker

from fedopt.engine import allocation
from fedopt.errors import WorkerError

_IMPORTED_BY_SERVER = ["fedopt.engine.executors.processes", "fedopt.runs.build_problem"]
# One thread per worker; the variables are read when a process starts.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    **allocation.ENVIRONMENT,
}


def start_worker_server() -> None:
    """Start the server, if it is not running, without waiting for its imports."""
    with worker_environment():
        forkserver.set_forkserver_preload(_IMPORTED_BY_SERVER)
        forkserver.ensure_running()


@contextmanager
def worker_environment() -> Iterator[None]:
    """Set the environment and the signal mask of processes that are started in the block.

    Thread settings must exist before a worker imports torch. A terminal sends its signals to all processes,
    and only the main process handles them. The resource tracker must be running before, because its start
    would unblock the signals.
    """
    resource_tracker.ensure_running()
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def failed_start(how: str = "early", other_way: str = "") -> WorkerError:
    """Build the error for a worker that could not import the main program."""
    return WorkerError(
        f"a worker process ended {how} during its start, see its messages above; a script that uses several "
        f"processes needs `if __name__ == '__main__':` around its call{other_way}"
    )
