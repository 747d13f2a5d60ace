"""How a round runs: sampling, executors, aggregation, evaluation, the loop. `round.py` is where to begin."""
