"""The paper's tables and figures: the runs that each needs, its numbers and its figure.

`registry` lists all of them.
"""
