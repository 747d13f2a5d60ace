"""The client of Flower's side: a PyTorch training loop as in Flower's own examples, in a Ray actor."""

from __future__ import annotations

import os
from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from side import Work, read_work
from torch_networks import loss_of, network

app = ClientApp()


@lru_cache(maxsize=1)
def opened() -> tuple[Work, torch.nn.Module]:
    """The work and a model, once in every actor."""
    torch.set_num_threads(1)
    work = read_work(os.environ["FEDOPT_WORK"], os.environ["FEDOPT_WORKERS"])
    return work, network(work.task, work.parameters())


@app.train()
def train(message: Message, context: Context) -> Message:
    work, model = opened()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), work.settings["client_lr"])
    inputs, targets = (torch.from_numpy(a) for a in work.cohort[context.node_config["partition-id"]])
    size = work.settings["batch_size"]
    for start in range(0, len(targets), size):
        optimizer.zero_grad()
        loss = loss_of(work.task, model(inputs[start : start + size]), targets[start : start + size])
        loss.backward()
        optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": float(loss), "num-examples": len(targets)}),
        }
    )
    return Message(content=content, reply_to=message)
