"""Run the workload with pfl-research: SimulatedBackend, FederatedAveraging, PyTorchModel, a process per core.

    .peers/pfl/bin/python benchmarks/peers/pfl/run.py DIRECTORY WORKERS

Workers are full replicas that all-reduce their statistics (torch.distributed, gloo on CPUs). Each has one
thread. Clients are distributed by size, the largest first (`user_id_to_weight`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


# 'processes': one single-threaded process per core. 'threads': one process with a thread per core.
MODE = os.environ.get("FEDOPT_PFL_MODE", "processes")


def launch(directory: str, workers: str) -> None:
    """Start the other ranks with pfl's environment variables and become rank 0."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if MODE == "threads":
        threads, workers = dict.fromkeys(threads, workers), "1"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # a free port
    addresses = ",".join([f"127.0.0.1:{port}"] * int(workers))
    shared = {**os.environ, **threads, "PFL_WORKER_ADDRESSES": addresses}
    for rank in range(1, int(workers)):
        subprocess.Popen(
            [sys.executable, __file__, directory, workers],
            env={**shared, "PFL_WORKER_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
    if int(workers) > 1:
        shared["PFL_WORKER_RANK"] = "0"
    else:
        del shared["PFL_WORKER_ADDRESSES"]
    os.execve(
        sys.executable, [sys.executable, __file__, directory, workers], {**shared, "FEDOPT_IS_RANK_0": "1"}
    )


def run_rank(directory: str, workers: str) -> None:
    import numpy as np
    import torch
    from peer_protocol import Channel, read_workload, versions
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops.selector import get_default_framework_module
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from torch_networks import build_network, compute_loss

    workload = read_workload(directory, workers)
    is_rank_0 = os.environ.get("FEDOPT_IS_RANK_0") == "1"
    channel = Channel() if is_rank_0 else None
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    np.random.seed(0)  # noqa: NPY002 - pfl samples from NumPy's global generator
    torch.manual_seed(0)
    module = build_network(workload.task, workload.parameters())

    class LossModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.train()
            return compute_loss(workload.task, self.network(inputs), targets)

        def metrics(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict:
            return {"examples": Weighted(0, len(targets))}  # pfl evaluates before and after its first round

    loss_module = LossModule()
    model = PyTorchModel(
        model=loss_module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(loss_module.parameters(), workload.settings["server_lr"]),
    )
    ids = list(range(len(workload.cohort)))
    users = {i: Dataset([torch.from_numpy(a) for a in workload.cohort[i]], user_id=str(i)) for i in ids}
    data = FederatedDataset(
        users.__getitem__,
        get_user_sampler("minimize_reuse", ids),
        user_id_to_weight={i: client["steps"] for i, client in enumerate(workload.settings["clients"])},
    )
    distributed = get_default_framework_module().distributed

    class TimeOnRequest(TrainingProcessCallback):
        """Time each central iteration, and start the next one on request."""

        def __init__(self) -> None:
            self.start = 0.0

        def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
            self.start = time.perf_counter()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            seconds = time.perf_counter() - self.start
            proceed = torch.ones(1)
            if channel is not None:
                ready = {}
                if central_iteration == 0:
                    parameters = {k: v.detach().numpy() for k, v in module.named_parameters()}
                    workload.write_x("pfl", parameters)
                    ready = {
                        "versions": versions("pfl", "torch"),
                        "settings": f"processes: {workload.workers}, threads of each: "
                        f"{torch.get_num_threads()} (gloo), clients distributed by size",
                    }
                channel.send(seconds=seconds, **ready)
                proceed[0] = float(channel.wait_for_request())
            if workload.workers > 1:
                torch.distributed.broadcast(proceed, 0)
            self.start = time.perf_counter()
            return not proceed.item(), Metrics()

    assert distributed.world_size == workload.workers, (distributed.world_size, workload.workers)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=len(ids),
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=workload.settings["client_lr"],
            local_batch_size=workload.settings["batch_size"],
        ),
        callbacks=[TimeOnRequest()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    if "FEDOPT_IS_RANK_0" in os.environ or "PFL_WORKER_RANK" in os.environ:
        run_rank(*sys.argv[1:3])
    else:
        launch(*sys.argv[1:3])
