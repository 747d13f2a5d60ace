"""Default learning rates: the task's best rates, which are the paper's for its tasks, or our own choice."""

from __future__ import annotations

from typing import NamedTuple

from fedopt.tasks import Task

# Server optimizer -> column of the paper's tables. The paper has no column for AMSGrad and AdaBound.
_COLUMN = {
    "sgd": "fedavg",
    "sgdm": "fedavgm",
    "adagrad": "fedadagrad",
    "adam": "fedadam",
    "yogi": "fedyogi",
    "amsgrad": "fedadam",
    "adabound": "fedadam",
}
_OUR_SERVER_RATES = {"sgd": 1.0, "sgdm": 0.1}  # 0.01 for all others


class DefaultRates(NamedTuple):
    client_lr: float
    server_lr: float
    tau: float | None


def default_rates(task: Task, algorithm: str, client: str, server: str) -> DefaultRates:
    """The best known rates for the most similar optimizers on this task."""
    column = task.settings.rates.get(_COLUMN.get(server, "")) if task.settings else None
    if column is None:
        rates = DefaultRates(0.1, _OUR_SERVER_RATES.get(server, 0.01), None)
    else:
        tau = None if column.tau is None else 10.0**column.tau
        rates = DefaultRates(10.0**column.client_lr, 10.0**column.server_lr, tau)
    if client not in ("sgd", "sgdm"):  # the paper's client rates are for SGD
        rates = rates._replace(client_lr=0.001)
    if algorithm == "centralized":  # the new model is that of the only client
        rates = rates._replace(server_lr=1.0)
    return rates
