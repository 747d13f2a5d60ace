"""Where a run's default learning rates come from: the paper's tables, or a stated choice of ours."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.tasks import Task

# The column of the paper's tables for each server optimizer; it has none for the last two.
_COLUMN = {
    "sgd": "fedavg",
    "sgdm": "fedavgm",
    "adagrad": "fedadagrad",
    "adam": "fedadam",
    "yogi": "fedyogi",
    "amsgrad": "fedadam",
    "adabound": "fedadam",
}
_OURS = {"sgd": 1.0, "sgdm": 0.1}  # server rates where there is no paper; adaptive servers: 0.01


class DefaultRates(NamedTuple):
    client_lr: float
    server_lr: float
    tau: float | None


def default_rates(task: Task, algorithm: str, client: str, server: str) -> DefaultRates:
    """The paper's best rates for what is nearest to this pair of optimizers on this task."""
    rates = task.paper.rates.get(_COLUMN[server]) if task.paper else None
    if rates is None:
        found = DefaultRates(0.1, _OURS.get(server, 0.01), None)
    else:
        tau = None if rates.tau is None else 10.0**rates.tau
        found = DefaultRates(10.0**rates.client_lr, 10.0**rates.server_lr, tau)
    if client not in ("sgd", "sgdm"):  # the paper's client rates are for SGD
        found = found._replace(client_lr=0.001)
    if algorithm == "centralized":  # what the one client comes to is the model
        found = found._replace(server_lr=1.0)
    return found
