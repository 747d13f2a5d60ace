"""Hyperparameter tuning: grids, trials, searches and the process pool that runs the trials."""
