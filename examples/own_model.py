"""Train your own model on your own examples, divided among 30 clients: python examples/own_model.py"""

import torch
from torch import nn

import fedopt

torch.manual_seed(0)
points = torch.randn(3000, 2)
labels = (points[:, 0] * points[:, 1] > 0).long()  # not linearly separable
parts = fedopt.partition.dirichlet(labels[:2000], clients=30, alpha=0.3, seed=0)
clients = fedopt.federate((points[:2000], labels[:2000]), parts)
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

task = fedopt.own_task(model, nn.functional.cross_entropy, clients, test=(points[2000:], labels[2000:]))
result = fedopt.run(task, algorithm="fedyogi", rounds=60, config={"server.lr": 0.1})
print(f"test accuracy {result.test[-1]['accuracy']:.3f}")
trained = result.model  # an ordinary nn.Module
