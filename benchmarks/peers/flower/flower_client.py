"""Flower client: a PyTorch training loop as in Flower's examples. It runs in a Ray actor."""

from __future__ import annotations

import os
from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peer_protocol import PeerWorkload, read_workload
from torch_networks import build_network, compute_loss

app = ClientApp()


@lru_cache(maxsize=1)
def load_workload() -> tuple[PeerWorkload, torch.nn.Module]:
    """Return the workload and a model. They are created once per actor."""
    torch.set_num_threads(1)
    workload = read_workload(os.environ["FEDOPT_WORK"], os.environ["FEDOPT_WORKERS"])
    return workload, build_network(workload.task, workload.parameters())


@app.train()
def train(message: Message, context: Context) -> Message:
    workload, model = load_workload()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), workload.settings["client_lr"])
    inputs, targets = (torch.from_numpy(a) for a in workload.cohort[context.node_config["partition-id"]])
    size = workload.settings["batch_size"]
    for start in range(0, len(targets), size):
        optimizer.zero_grad()
        loss = compute_loss(workload.task, model(inputs[start : start + size]), targets[start : start + size])
        loss.backward()
        optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": float(loss), "num-examples": len(targets)}),
        }
    )
    return Message(content=content, reply_to=message)
