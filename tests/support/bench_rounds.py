"""One round of a benchmark workload, by fedopt's engine and by plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import torch
from speed.workload import BenchmarkWorkload

from fedopt.algorithms import Round
from fedopt.engine.aggregate import BlockedMean, BlockSum
from fedopt.engine.torch_state import single_thread
from fedopt.engine.worker import ClientJob, Worker


def run_engine_round(workload: BenchmarkWorkload) -> torch.Tensor:
    """Return x after one round of FedAvg with server rate 1."""
    runner = Worker(workload.problem, workload.problem.federation(), ())
    block, mean = BlockSum(), BlockedMean()
    cohort = len(workload.examples)
    with single_thread():
        for client in range(cohort):
            round = Round(0, workload.client_lr, 1.0, cohort, cohort)
            outcome, vectors = runner.run(ClientJob(round, client), (workload.x,), None)
            block.add(outcome.weight, vectors, outcome.rows)
    mean.add_block(block)
    value = mean.value()
    assert value is not None
    return workload.x + value[0]


def run_pytorch_round(protocol: ModuleType, networks: ModuleType, directory: Path) -> Path:
    """Run the same round with torch.optim on the files that peers read. Return the file with the model."""
    workload = protocol.read_workload(str(directory), "1")
    initial, mean = workload.parameters(), {}
    examples = sum(len(targets) for _, targets in workload.cohort)
    with single_thread():
        for inputs, targets in workload.cohort:
            model = networks.build_network(workload.task, initial)
            optimizer = torch.optim.SGD(model.parameters(), workload.settings["client_lr"])
            size = workload.settings["batch_size"]
            for start in range(0, len(targets), size):
                optimizer.zero_grad()
                rows = slice(start, start + size)
                outputs = model(torch.from_numpy(inputs[rows]))
                networks.compute_loss(workload.task, outputs, torch.from_numpy(targets[rows])).backward()
                optimizer.step()
            for name, p in model.named_parameters():
                mean[name] = mean.get(name, 0) + p.detach().numpy() * (len(targets) / examples)
    workload.write_x("plain", mean)
    return directory / "plain_x.npy"
