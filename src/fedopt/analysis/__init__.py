"""Numbers computed from recorded runs: confidence intervals, comparisons and learning-rate grids."""
