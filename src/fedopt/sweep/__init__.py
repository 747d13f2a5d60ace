"""Tuning: grids of rates, trials side by side, and searches that decide which trial goes on."""
