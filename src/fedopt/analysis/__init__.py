"""Numbers computed from recorded runs: seeds, intervals, summaries, grids. Nothing is printed here."""
