"""Run the workload with Flower: simulation engine (Ray), FedAvg, a PyTorch client and one actor per core.

.peers/flower/bin/python benchmarks/peers/flower/run.py DIRECTORY WORKERS
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATHS = [str(HERE), str(HERE.parent)]
sys.path[:0] = PATHS


class NoMoreRequests(Exception):
    """Ends the simulation."""


def main(directory: str, workers: str) -> None:
    os.environ.update(  # set before other imports; the actors inherit it
        FEDOPT_WORK=directory,
        FEDOPT_WORKERS=workers,
        PYTHONPATH=os.pathsep.join(PATHS),
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        FLWR_TELEMETRY_ENABLED="0",
        RAY_USAGE_STATS_ENABLED="0",
    )
    from peer_protocol import Channel, versions

    channel = Channel()
    from flower_client import app, load_workload
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    workload, model = load_workload()
    clients = len(workload.cohort)
    server = ServerApp()

    @server.main()
    def run_rounds(grid: Grid, context: Context) -> None:
        start = 0.0

        def after_round(round: int, arrays: ArrayRecord) -> None:
            nonlocal start
            if round:
                seconds = time.perf_counter() - start
                ready = {}
                if round == 1:
                    parameters = {k: v.numpy() for k, v in arrays.to_torch_state_dict().items()}
                    workload.write_x("flower", parameters)
                    ready = {
                        "versions": versions("flwr", "ray", "torch"),
                        "settings": f"Ray, {workers} actors of 1 thread",
                    }
                channel.send(seconds=seconds, **ready)
                if not channel.wait_for_request():
                    raise NoMoreRequests
            start = time.perf_counter()

        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        try:
            strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=10**6, evaluate_fn=after_round)
        except NoMoreRequests:
            pass

    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=clients,
        backend_config={
            "init_args": {
                "num_cpus": int(workers),
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "log_to_driver": False,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
