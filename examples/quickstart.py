"""Train your own model on your own clients with FedYogi: python examples/quickstart.py"""

import numpy as np
from torch import nn

import fedopt


def two_moons(rng: np.random.Generator, n: int, upper_share: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw n points from two interleaved half circles. The label is 1 for points of the upper one."""
    upper, angle = rng.random(n) < upper_share, rng.uniform(0, np.pi, n)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.1, (n, 2))
    points[~upper] = [1.0, 0.5] - points[~upper]
    return points.astype(np.float32), upper.astype(np.int64)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))


# Each of 30 clients has mostly points of one half circle. The test set is balanced.
clients = {}
for number in range(30):
    rng = np.random.default_rng(number)
    clients[f"client {number}"] = two_moons(rng, n=40, upper_share=rng.beta(0.3, 0.3))
test = two_moons(np.random.default_rng(30), n=1000, upper_share=0.5)

task = fedopt.own_task(network, nn.functional.cross_entropy, clients, test)
result = fedopt.run(task, algorithm="fedyogi", rounds=60, config={"server.lr": 0.1})

for record in result.test:
    print(f"round {record['round']:3}: test accuracy {record['accuracy']:.3f}, loss {record['loss']:.3f}")

model = result.model  # the trained network, an ordinary nn.Module
