"""The command line. Heavy modules are imported inside the commands, so that `--help` is fast.

Another package adds a command as an entry point of the group `fedopt.commands`: a function with the
annotations of typer. The options below are those of several commands.
"""

from fedopt.cli.app import main
from fedopt.cli.options import (
    Json,
    RayAddress,
    Seeds,
    TrialExecutorName,
    Workers,
    announce,
    parse_seed_option,
)

__all__ = [
    "Json",
    "RayAddress",
    "Seeds",
    "TrialExecutorName",
    "Workers",
    "announce",
    "main",
    "parse_seed_option",
]
