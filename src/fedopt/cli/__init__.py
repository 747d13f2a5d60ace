"""The command line. Heavy modules are imported inside the commands, so that `--help` is fast."""

from fedopt.cli.app import main as main
