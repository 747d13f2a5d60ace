"""The limit of open files, which many worker processes can exceed."""

from __future__ import annotations

import os
import resource

from fedopt.errors import WorkerError

_FILES_PER_WORKER = 4  # a connection, the end of the process, and two while it starts
_OTHER_FILES = 16  # shared vectors, the evaluation sample, files of the run


def allow_open_files(workers: int) -> None:
    """Raise the limit of this process if `workers` processes need it, or raise an error if that is forbidden.

    Without this check, the server of the workers prints a traceback when the limit is reached.
    """
    needed = _open_files() + _FILES_PER_WORKER * workers + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise WorkerError(
            f"{workers} workers need {needed} open files and the limit is {hard}; raise it with ulimit -n, "
            "use fewer workers, or the serial executor"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # not Linux
        return 16
