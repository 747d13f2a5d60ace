"""A server optimizer of your own is one function: python examples/my_algorithm.py"""

import numpy as np
import torch
from torch import nn

import fedopt
from fedopt import algorithms


def sign_step(x, delta, eta, t, state):
    """x_{t+1} = x_t + eta sign(Delta_t): a rare feature's weight moves as far as a common one's."""
    return x + eta * torch.sign(delta), state


def fedsign() -> fedopt.Algorithm:
    return algorithms.fedopt(client=algorithms.sgd(), server=fedopt.Optimizer(sign_step))


# Forty clients with texts of a language whose words are rare but for a few: the k-th is in every k-th text.
# A word speaks for or against the label, and the label is what most words of a text say.
language = np.random.default_rng(40)
opinion = language.choice([-1.0, 1.0], size=100)


def texts(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    words = rng.random((n, 100)) < 1 / np.arange(1, 101)
    return words.astype(np.float32), (words @ opinion > 0).astype(np.int64)


def network() -> nn.Module:
    return nn.Linear(100, 2)


clients = {f"client {number}": texts(np.random.default_rng(number), n=50) for number in range(40)}
task = fedopt.own_task(network, nn.functional.cross_entropy, clients, test=texts(language, n=2000))

for algorithm, server_lr in (("fedavg", 1.0), (fedsign, 0.03)):
    config = {"client.lr": 1.0, "server.lr": server_lr}
    result = fedopt.run(task, algorithm=algorithm, rounds=50, config=config)
    print(f"{result.algorithm:8} test accuracy {result.test[-1]['accuracy']:.3f}")
