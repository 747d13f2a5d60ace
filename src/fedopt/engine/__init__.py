"""Run a round: sampling, executors, aggregation, evaluation, training loop. Start with `round.py`."""
