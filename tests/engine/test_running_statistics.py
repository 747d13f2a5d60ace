"""Running statistics of batch normalisation: means over clients, and statistics that stay with a client."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from own_clients import CLASSES, CLIENTS, FEATURES, IDS, TEST, make_task, train
from safetensors.torch import load_file
from torch import nn

import fedopt
from fedopt.engine.executors import ExecutorOptions
from fedopt.engine.executors.processes import Processes
from fedopt.runs.execute import execute
from fedopt.runs.prepare import RunRequest

RATE, SIZE = 0.1, 12
# Two full-batch steps per round. Every client takes part, so the order of sampling has no influence.
FULL = {"clients_per_round": 6, "client.batch_size": SIZE, "client.steps": 2, "client.lr": RATE}
# Three of six clients with batches of 5, 5 and 2 examples.
SAMPLED = {"clients_per_round": 3, "client.batch_size": 5, "client.lr": RATE, "checkpoint.every": 1}


class Normed(nn.Module):
    """Module level, so that worker processes can import it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, CLASSES)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.relu(self.norm(self.first(points))))
        return out


STATISTICS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")


def by_hand(start: nn.Module, rounds: int, is_local: bool) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Plain PyTorch: the state_dict of the server, and of each client, after some rounds."""
    server = {name: value.clone() for name, value in start.state_dict().items()}
    clients: dict[str, dict[str, torch.Tensor]] = {}
    for _ in range(rounds):
        trained = []
        for name in IDS:
            model = copy.deepcopy(start)
            model.load_state_dict(server)
            if is_local:
                initial = start.state_dict() if name not in clients else clients[name]
                model.load_state_dict({k: initial[k] if k in STATISTICS else server[k] for k in server})
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            points, labels = (torch.from_numpy(a) for a in CLIENTS[name])
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(points), labels).backward()
                optimizer.step()
            clients[name] = {k: v.detach().clone() for k, v in model.state_dict().items()}
            trained.append(clients[name])
        server = {k: torch.stack([c[k].double() for c in trained]).mean(0).float() for k in server}
        server = {k: v.round().long() if "num_batches" in k else v for k, v in server.items()}
    return server, clients


@pytest.mark.parametrize("policy", ["average", "local"])
def test_training_equals_a_loop_in_plain_pytorch(policy: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    start, run = Normed(), tmp_path / "run"
    result = train(make_task(start), rounds=3, config=FULL, buffers=policy, out=run)
    server, clients = by_hand(start, 3, policy == "local")
    for model in (result.model, fedopt.load(run, Normed).model):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, server[name], rtol=1e-4, atol=1e-5)
    points, labels = (torch.from_numpy(a) for a in TEST)
    with torch.no_grad():
        loss = F.cross_entropy(result.model(points), labels)
    assert result.test[-1]["loss"] == pytest.approx(float(loss), rel=1e-5)
    if policy == "local":
        rows = sorted((run / "clients").glob("*-000002.safetensors"))
        for name, row in zip(IDS, rows, strict=True):
            kept = load_file(row)["running_statistics"]
            expected = torch.cat([clients[name][k].reshape(-1).float() for k in STATISTICS])
            torch.testing.assert_close(kept, expected, rtol=1e-4, atol=1e-5)


def test_policies_differ() -> None:
    torch.manual_seed(0)
    task = make_task(Normed())
    losses = {
        policy: train(task, rounds=4, config=SAMPLED, buffers=policy).test[-1]["loss"]
        for policy in ("freeze", "average", "local")
    }
    assert len(set(losses.values())) == 3


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedadam"])
@pytest.mark.parametrize("policy", ["average", "local"])
def test_processes_equal_serial_and_resumed_equals_uninterrupted(
    policy: str, algorithm: str, tmp_path: Path
) -> None:
    task = make_task(Normed)
    settings = {**SAMPLED, "buffers": policy, "rounds": 4}
    options = {"algorithm": algorithm, "config": SAMPLED, "buffers": policy}
    serial = train(task, rounds=4, **options)
    prepared = RunRequest(task, algorithm, settings).prepare()
    executor = Processes(2)
    try:
        parallel = execute(prepared, executor)
    finally:
        executor.close()
    train(task, rounds=2, out=tmp_path / "run", **options)
    resumed = train(task, rounds=4, out=tmp_path / "run", **options)
    for other in (parallel, resumed):
        assert other.x_sha256 == serial.x_sha256
        assert other.test[-1]["loss"] == serial.test[-1]["loss"]
        for name, value in other.model.state_dict().items():
            assert torch.equal(value, serial.model.state_dict()[name]), name


def test_vectorised_executor_falls_back_with_a_reason() -> None:
    task = make_task(Normed)
    serial = train(task, config=SAMPLED, buffers="average")
    request = RunRequest(
        task, "fedavg", {**SAMPLED, "buffers": "average", "rounds": 2}, executor=ExecutorOptions("vectorised")
    )
    prepared = request.prepare()
    from fedopt.engine.executors.vectorised import Vectorised

    result = execute(prepared, Vectorised("cpu"))
    assert "running statistics" in result.fallback_reason
    torch.testing.assert_close(result.x, serial.x)


def test_statistics_count_as_sent_bytes() -> None:
    task = make_task(Normed)
    d, s = sum(p.numel() for p in Normed().parameters()), 5 + 5 + 1
    down, up = (
        [train(task, rounds=1, config=FULL, buffers=policy).train[0][key] for policy in ("average", "local")]
        for key in ("bytes_down", "bytes_up")
    )
    assert down == [4 * 6 * (d + s), 4 * 6 * d]
    assert up == [4 * 6 * (d + s), 4 * 6 * (d + s)]


def test_batch_of_one_example_names_the_remedy() -> None:
    config = {**FULL, "client.batch_size": 11}  # 12 examples: batches of 11 and 1
    with pytest.raises(fedopt.errors.WorkerError, match="client.drop_last") as caught:
        train(make_task(Normed), config=config, buffers="average")
    assert caught.value.client in IDS and "\n" not in str(caught.value)


def test_model_without_norms_is_trained_as_usual() -> None:
    model = nn.Linear(FEATURES, CLASSES)
    plain, average = (train(make_task(model), buffers=policy) for policy in ("refuse", "average"))
    np.testing.assert_allclose(plain.x.numpy(), average.x.numpy(), rtol=1e-6, atol=1e-7)


def test_train_clients_are_evaluated_with_their_own_local_statistics(tmp_path: Path) -> None:
    task, run = make_task(Normed), tmp_path / "run"
    result = train(task, rounds=2, config={**SAMPLED, "clients_per_round": 2}, buffers="local", out=run)
    rows = {int(path.name[:7]): path for path in sorted((run / "clients").iterdir())}
    assert 0 < len(rows) < len(IDS)  # some clients have not taken part
    model, mean = result.model, result.model.state_dict()
    expected = {}
    for index, name in enumerate(IDS):
        values = {k: mean[k] for k in STATISTICS}
        if index in rows:
            kept = load_file(rows[index])["running_statistics"]
            values = {STATISTICS[0]: kept[:5], STATISTICS[1]: kept[5:10], STATISTICS[2]: kept[10].long()}
        model.load_state_dict({**mean, **values})
        points, labels = (torch.from_numpy(a) for a in CLIENTS[name])
        with torch.no_grad():
            expected[name] = float((model(points).argmax(1) == labels).float().mean())
    for evaluation in (
        fedopt.evaluate(run, split="train", task=task),
        fedopt.evaluate(result, split="train"),
    ):
        assert evaluation.by_client == pytest.approx(expected)
