"""Run the workload with FedJAX: federated_averaging with one jitted client step on FedJAX datasets.

    .peers/fedjax/bin/python benchmarks/peers/fedjax/run.py DIRECTORY WORKERS

FedJAX fills up a client's last batch with its first examples (`shuffle_repeat_batch`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main(directory: str, workers: str) -> None:
    from peer_protocol import Channel, read_workload, serve, versions

    workload, channel = read_workload(directory, workers), Channel()
    # 'jit': one client at a time, each step uses all cores. 'pmap': one client per core.
    faster_with_jit = workload.task in ("so_lr", "synthetic_lr", "synthetic_mlp")
    backend = os.environ.get("FEDOPT_FEDJAX_BACKEND", "jit" if faster_with_jit else "pmap")
    if backend == "pmap":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={workers}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import fedjax
    import jax
    import numpy as np
    from networks import NETWORKS, compute_losses, dense_bags, from_torch_layout, to_torch_layout

    network = NETWORKS[workload.task]
    fedjax.set_for_each_client_backend(backend)
    params = {
        name: jax.numpy.asarray(from_torch_layout(name, a)) for name, a in workload.parameters().items()
    }
    assert sum(a.size for a in params.values()) == workload.settings["count"]

    model = fedjax.Model(
        init=lambda rng: params,
        apply_for_train=lambda p, batch, rng: network(p, batch["x"], rng),
        apply_for_eval=lambda p, batch: network(p, batch["x"], jax.random.PRNGKey(0)),
        train_loss=lambda batch, outputs: compute_losses(workload.task, outputs, batch["y"]),
        eval_metrics={},
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(workload.settings["client_lr"]),
        fedjax.optimizers.sgd(workload.settings["server_lr"]),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=workload.settings["batch_size"], num_epochs=1, drop_remainder=False, skip_shuffle=True
        ),
    )

    def build_dataset(inputs: np.ndarray, targets: np.ndarray) -> fedjax.ClientDataset:
        if workload.task == "so_lr":
            inputs = dense_bags(inputs)
        arrays = [a.astype(np.int32) if a.dtype == np.int64 else a for a in (inputs, targets)]
        return fedjax.ClientDataset({"x": arrays[0], "y": arrays[1]})

    datasets = [build_dataset(*arrays) for arrays in workload.cohort]
    state = algorithm.init(params)
    rng = jax.random.PRNGKey(0)

    def run_round() -> None:
        nonlocal state, rng
        rng, *keys = jax.random.split(rng, len(datasets) + 1)
        clients = [(name, data, key) for name, data, key in zip(workload.ids, datasets, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)

    def after_first() -> None:
        parameters = {name: to_torch_layout(name, np.asarray(a)) for name, a in state.params.items()}
        workload.write_x("fedjax", parameters)

    settings = f"backend {backend}, " + (f"{workers} devices" if backend == "pmap" else "XLA's own threads")
    serve(
        channel,
        run_round,
        after_first,
        versions=versions("fedjax", "jax", "jaxlib", "dm-haiku"),
        settings=settings,
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
