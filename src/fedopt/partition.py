"""Partition a dataset among clients. `fedopt.federate` applies a partition to a dataset.

    parts = fedopt.partition.dirichlet(labels, clients=100, alpha=0.1, seed=0)
    task = fedopt.own_task(model, loss, fedopt.federate((inputs, labels), parts), test)

A partition is a list of arrays: the positions of the examples of each client. `by_column` returns a dict with
the names of the clients. Every example is used exactly once. The seed fixes the result.
"""

from fedopt.data.partition import by_column, by_label, dirichlet, iid, pachinko

__all__ = ["by_column", "by_label", "dirichlet", "iid", "pachinko"]
