"""FedJAX's side: its federated_averaging with one jitted client step, on its own client datasets.

    .peers/fedjax/bin/python benchmarks/peers/fedjax/run.py DIRECTORY WORKERS

A client's last batch is always full in FedJAX (`shuffle_repeat_batch` begins again at its first examples).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main(directory: str, workers: str) -> None:
    from side import Voice, read_work, serve, versions

    work, voice = read_work(directory, workers), Voice()
    # 'jit': clients one after the other, each step on all cores. 'pmap': one client per core.
    backend = os.environ.get("FEDOPT_FEDJAX_BACKEND", "jit" if work.task == "so_lr" else "pmap")
    if backend == "pmap":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={workers}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import fedjax
    import jax
    import numpy as np
    from networks import NETWORKS, bags_of, kernels_in, kernels_out, losses_of

    network = NETWORKS[work.task]
    fedjax.set_for_each_client_backend(backend)
    handed = work.parameters()
    params = {name: jax.numpy.asarray(kernels_in(name, a)) for name, a in handed.items()}
    assert sum(a.size for a in params.values()) == work.settings["count"]

    model = fedjax.Model(
        init=lambda rng: params,
        apply_for_train=lambda p, batch, rng: network(p, batch["x"], rng),
        apply_for_eval=lambda p, batch: network(p, batch["x"], jax.random.PRNGKey(0)),
        train_loss=lambda batch, outputs: losses_of(work.task, outputs, batch["y"]),
        eval_metrics={},
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.settings["client_lr"]),
        fedjax.optimizers.sgd(work.settings["server_lr"]),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=work.settings["batch_size"], num_epochs=1, drop_remainder=False, skip_shuffle=True
        ),
    )

    def prepared(inputs: np.ndarray, targets: np.ndarray) -> fedjax.ClientDataset:
        if work.task == "so_lr":
            inputs = bags_of(inputs)
        small = [a.astype(np.int32) if a.dtype == np.int64 else a for a in (inputs, targets)]
        return fedjax.ClientDataset({"x": small[0], "y": small[1]})

    datasets = [prepared(*arrays) for arrays in work.cohort]
    state = algorithm.init(params)
    rng = jax.random.PRNGKey(0)

    def round() -> None:
        nonlocal state, rng
        rng, *keys = jax.random.split(rng, len(datasets) + 1)
        clients = [(name, data, key) for name, data, key in zip(work.ids, datasets, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)

    def after_first() -> None:
        found = {name: kernels_out(name, np.asarray(a)) for name, a in state.params.items()}
        work.write_x("fedjax", found)

    settings = f"backend {backend}, " + (f"{workers} devices" if backend == "pmap" else "XLA's own threads")
    serve(
        voice, round, after_first, versions=versions("fedjax", "jax", "jaxlib", "dm-haiku"), settings=settings
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
