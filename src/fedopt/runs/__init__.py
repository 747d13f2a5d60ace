"""Runs: configuration, execution, the run directory and its records."""
