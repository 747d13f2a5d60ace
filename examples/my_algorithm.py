"""Define your own server optimizer and compare it with FedAvg: python examples/my_algorithm.py"""

import numpy as np
import torch
from torch import nn

import fedopt
from fedopt import algorithms


def sign_step(x, delta, eta, t, state):
    """x_{t+1} = x_t + eta sign(Delta_t): the weights of rare features move as far as those of common ones."""
    return x + eta * torch.sign(delta), state


def fedsign() -> fedopt.Algorithm:
    return algorithms.fedopt(client=algorithms.sgd(), server=fedopt.Optimizer(sign_step))


# A language of 100 words. Word k occurs in a text with probability 1/k, so most words are rare.
# Each word has a sentiment of -1 or 1. The label of a text is the sign of the sum over its words.
language_rng = np.random.default_rng(40)
sentiment = language_rng.choice([-1.0, 1.0], size=100)


def draw_texts(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    words = rng.random((n, 100)) < 1 / np.arange(1, 101)
    return words.astype(np.float32), (words @ sentiment > 0).astype(np.int64)


def network() -> nn.Module:
    return nn.Linear(100, 2)


clients = {f"client {number}": draw_texts(np.random.default_rng(number), n=50) for number in range(40)}
task = fedopt.own_task(network, nn.functional.cross_entropy, clients, test=draw_texts(language_rng, n=2000))

for algorithm, server_lr in (("fedavg", 1.0), (fedsign, 0.03)):
    config = {"client.lr": 1.0, "server.lr": server_lr}
    result = fedopt.run(task, algorithm=algorithm, rounds=50, config=config)
    print(f"{result.algorithm:8} test accuracy {result.test[-1]['accuracy']:.3f}")
