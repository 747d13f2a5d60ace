"""Reproduce the paper's tables and figures and compare them with the printed numbers."""
