"""pfl-research's side: its simulated backend, FederatedAveraging and PyTorch model, one process per core.

    .peers/pfl/bin/python benchmarks/peers/pfl/run.py DIRECTORY WORKERS

Its workers are full replicas that all-reduce their statistics (torch.distributed, gloo on CPUs). Each holds
one thread; the cohort is spread by the clients' sizes, the longest first (`user_id_to_weight`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


# 'processes': one per core, of one thread. 'threads': one process with a thread per core.
MODE = os.environ.get("FEDOPT_PFL_MODE", "processes")


def lead(directory: str, workers: str) -> None:
    """Become rank 0, and start the others as pfl's own variables ask for."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if MODE == "threads":
        threads, workers = dict.fromkeys(threads, workers), "1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
    os.execve(sys.executable, [sys.executable, __file__, directory, workers], {**shared, "FEDOPT_LEADS": "1"})


def work_on(directory: str, workers: str) -> None:
    import numpy as np
    import torch
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
    from side import Voice, read_work, versions
    from torch_networks import loss_of, network

    work = read_work(directory, workers)
    leads = os.environ.get("FEDOPT_LEADS") == "1"
    voice = Voice() if leads else None
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    np.random.seed(0)  # noqa: NPY002 - pfl samples from NumPy's global generator
    torch.manual_seed(0)
    module = network(work.task, work.parameters())

    class Trained(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.train()
            return loss_of(work.task, self.network(inputs), targets)

        def metrics(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict:
            return {"examples": Weighted(0, len(targets))}  # pfl measures before and after its first round

    trained = Trained()
    model = PyTorchModel(
        model=trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), work.settings["server_lr"]),
    )
    ids = list(range(len(work.cohort)))
    users = {i: Dataset([torch.from_numpy(a) for a in work.cohort[i]], user_id=str(i)) for i in ids}
    data = FederatedDataset(
        users.__getitem__,
        get_user_sampler("minimize_reuse", ids),
        user_id_to_weight={i: client["steps"] for i, client in enumerate(work.settings["clients"])},
    )
    distributed = get_default_framework_module().distributed

    class Asked(TrainingProcessCallback):
        """Times every central iteration, and begins the next one when it is asked for."""

        def __init__(self) -> None:
            self.start = 0.0

        def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
            self.start = time.perf_counter()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            seconds = time.perf_counter() - self.start
            go_on = torch.ones(1)
            if voice is not None:
                ready = {}
                if central_iteration == 0:
                    found = {k: v.detach().numpy() for k, v in module.named_parameters()}
                    work.write_x("pfl", found)
                    ready = {
                        "versions": versions("pfl", "torch"),
                        "settings": f"{work.workers} processes with {torch.get_num_threads()} threads each "
                        "(gloo), clients spread by size",
                    }
                voice.say(seconds=seconds, **ready)
                go_on[0] = float(voice.asked())
            if work.workers > 1:
                torch.distributed.broadcast(go_on, 0)
            self.start = time.perf_counter()
            return not go_on.item(), Metrics()

    assert distributed.world_size == work.workers, (distributed.world_size, work.workers)
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
            local_learning_rate=work.settings["client_lr"],
            local_batch_size=work.settings["batch_size"],
        ),
        callbacks=[Asked()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    if "FEDOPT_LEADS" in os.environ or "PFL_WORKER_RANK" in os.environ:
        work_on(*sys.argv[1:3])
    else:
        lead(*sys.argv[1:3])
