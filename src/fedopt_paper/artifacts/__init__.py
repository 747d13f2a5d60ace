"""The paper's tables and figures: the runs, the numbers and the figure of each; `registry` lists them."""
