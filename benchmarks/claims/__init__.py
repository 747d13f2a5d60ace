"""The paper's claims: the runs that check them, their results, and the page docs/claims.md.

`python -m claims run` executes what is missing; `python -m claims page` writes the page from stored results.
"""
