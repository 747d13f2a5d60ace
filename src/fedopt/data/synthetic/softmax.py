"""Synthetic(alpha, beta) of Li et al., Federated Optimization in Heterogeneous Networks (FedProx).

Client k has its own linear classifier and its own distribution of inputs:

    u_k ~ N(0, alpha),  W_k, b_k ~ N(u_k, 1),  y = argmax softmax(W_k x + b_k)
    B_k ~ N(0, beta),   v_k ~ N(B_k, 1),       x ~ N(v_k, diag(j^-1.2)),  j = 1 to 60

As in the authors' program, alpha and beta are standard deviations, a client has 50 examples more than a draw
from lognormal(4, 2), rounded down, and 90 % of its examples are for training. beta controls how much the
inputs of clients differ. alpha has no effect on the data: u_k adds the same number to the scores of all
classes, so the largest score stays the largest. The classifiers of clients are independent for every alpha.

The data of a client does not depend on the number of clients.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from fedopt import rng
from fedopt.data.synthetic.common import Doubles, Integers, Singles, check_client, count_clients, read_only

INPUTS, CLASSES = 60, 10
DEVIATIONS: Doubles = np.arange(1.0, INPUTS + 1) ** -0.6  # of the inputs; the variances are j^-1.2
TRAIN_SHARE = 0.9
CACHED_CLIENTS = 1000  # per process; about 100 MB at the mean size, because a round takes milliseconds


@cache
def _total_sizes(clients: int) -> Integers:
    draw = rng.generator("synthetic_softmax", "sizes")
    return read_only(draw.lognormal(4, 2, clients).astype(np.int64) + 50)


def sizes(split: str, clients: int) -> Integers:
    """Return the number of examples of each client, int64 (clients,)."""
    count_clients({"train": clients, "test": clients}, split)
    total = _total_sizes(clients)
    train = (TRAIN_SHARE * total).astype(np.int64)
    return train if split == "train" else total - train


def ids(clients: int) -> list[str]:
    """Return the names of the clients, which are the same in both splits."""
    return [f"client{number:05d}" for number in range(clients)]


def examples(
    split: str, client: int, clients: int, alpha: float, beta: float
) -> dict[str, Singles | Integers]:
    """Return the columns of one client: `features` float32 (n, 60) and `label` int64 (n,)."""
    client = check_client(split, client, clients)
    train = int(sizes("train", clients)[client])
    rows = slice(None, train) if split == "train" else slice(train, None)
    features, label = _draw_client(client, int(_total_sizes(clients)[client]), alpha, beta)
    return {"features": features[rows], "label": label[rows]}


@lru_cache(CACHED_CLIENTS)
def _draw_client(client: int, size: int, alpha: float, beta: float) -> tuple[Singles, Integers]:
    """Draw inputs and labels of a client for both splits."""
    draw = rng.generator("synthetic_softmax", "client", client)
    u, big_b = alpha * draw.standard_normal(), beta * draw.standard_normal()
    w = u + draw.standard_normal((INPUTS, CLASSES))
    b = u + draw.standard_normal(CLASSES)
    v = big_b + draw.standard_normal(INPUTS)
    x = (v + DEVIATIONS * draw.standard_normal((size, INPUTS))).astype(np.float32)
    y = np.argmax(x @ w + b, axis=1)  # the largest entry of the softmax is that of its argument
    for array in (x, y):
        array.setflags(write=False)
    return x, y
