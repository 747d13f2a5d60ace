"""What can go wrong, as one small tree.

FedoptError          the base: the command line prints its one line
  UserError          the user's mistake: names what, where, what is allowed, what to do (exit 2)
  RunError           the run failed although it was asked for correctly (exit 1)
    Diverged         its updates are no longer finite: other rates may train
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedoptError(Exception):
    """Base of every error that fedopt raises on purpose; its text is one clear line."""

    exit_code = 1


class UserError(FedoptError):
    """Something asked for cannot be: an unknown name, a bad value, a directory of another run."""

    exit_code = 2


class RunError(FedoptError):
    """A run that was asked for correctly could not go on: it diverged, a client failed, a disk is full."""


class Diverged(RunError):
    """A run was given up because its updates were not finite; a sweep goes on without it."""


def unknown(what: str, name: str, allowed: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("algorithm", "fedadm", ["fedavg", "fedadam"]))
    "unknown algorithm 'fedadm' (did you mean 'fedadam'?); allowed: fedavg, fedadam"
    """
    names = list(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return UserError(f"unknown {what} {name!r}{hint}; allowed: {', '.join(names)}")
