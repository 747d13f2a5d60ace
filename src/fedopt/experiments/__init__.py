"""Where things are written down: configuration, run directory, checkpoints, reports."""
