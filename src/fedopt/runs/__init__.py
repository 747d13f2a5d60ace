"""Runs: configuration, execution, the run directory and what is read back from it."""
