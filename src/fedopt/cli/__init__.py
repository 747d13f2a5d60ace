"""The command line: thin. Nothing heavy is imported before a command needs it."""

from fedopt.cli.app import main as main
