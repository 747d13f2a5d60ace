"""Your own model, loss and clients, trained by FedYogi: python examples/quickstart.py"""

import numpy as np
from torch import nn

import fedopt


def two_moons(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """n points of two interleaved half circles, `share` of them of the upper one, and which each is of."""
    upper, angle = rng.random(n) < share, rng.uniform(0, np.pi, n)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.1, (n, 2))
    points[~upper] = [1.0, 0.5] - points[~upper]
    return points.astype(np.float32), upper.astype(np.int64)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))


# Thirty clients, each of which sees mostly one of the two moons; the test set has both alike.
clients = {}
for number in range(30):
    rng = np.random.default_rng(number)
    clients[f"client {number}"] = two_moons(rng, n=40, share=rng.beta(0.3, 0.3))
test = two_moons(np.random.default_rng(30), n=1000, share=0.5)

task = fedopt.own_task(network, nn.functional.cross_entropy, clients, test)
result = fedopt.run(task, algorithm="fedyogi", rounds=60, config={"server.lr": 0.1})

for line in result.test:
    print(f"round {line['round']:3}: test accuracy {line['accuracy']:.3f}, loss {line['loss']:.3f}")

model = result.model  # the trained network, to use as any other
