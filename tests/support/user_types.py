"""A small project of a user, checked with `mypy --strict` against the installed wheel.

`assert_type` is an error if a public type is not exactly the expected one, for example if it is Any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, assert_type

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import fedopt
from fedopt import algorithms


class DriftState(NamedTuple):
    x: Tensor
    drift: Tensor


def drift_corrected(*, mu: float = 0.1) -> fedopt.Algorithm:
    """A complete algorithm with state on the server and on clients."""

    def init(x: Tensor) -> DriftState:
        return DriftState(x, torch.zeros_like(x))

    def client(work: fedopt.Work, x: Tensor, drift: Tensor) -> fedopt.ClientResult:
        assert_type(work.round, fedopt.Round)
        assert_type(work.round.eta_l, float)
        assert_type(work.steps, int)
        assert_type(work.kept, tuple[Tensor, ...] | None)
        (last,) = work.kept_or(torch.zeros_like(x))
        x_i = x
        for batch in work.batches():
            gradient = work.gradient(x_i, batch)
            assert_type(gradient, Tensor)
            x_i = x_i - work.round.eta_l * (gradient + mu * (drift - last))
        return fedopt.ClientResult((x_i - x,), (x_i - x,))

    def server(state: DriftState, means: tuple[Tensor, ...], round: fedopt.Round) -> DriftState:
        return DriftState(state.x + round.eta * means[0], means[0])

    return fedopt.Algorithm(init, client, server, sends=("x", "drift"), keeps=("last",))


def sign_step(x: Tensor, delta: Tensor, eta: float, t: int, state: NamedTuple) -> tuple[Tensor, NamedTuple]:
    return x + eta * torch.sign(delta), state


def fedsign() -> fedopt.Algorithm:
    """A server optimizer."""
    return algorithms.fedopt(client=algorithms.sgd(), server=fedopt.Optimizer(sign_step))


def stop_early(step: fedopt.Step) -> object:
    """A callback."""
    assert_type(step.position, fedopt.Position)
    assert_type(step.position.round, int)
    assert_type(step.report, fedopt.RoundReport | None)
    return fedopt.STOP if step.position.round >= 2 else None


def network() -> nn.Module:
    return nn.Linear(4, 2)


def main() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 4)).astype(np.float32)
    labels = rng.integers(0, 2, 60)
    parts = fedopt.partition.dirichlet(labels, clients=4, alpha=1.0, seed=0)
    assert_type(parts, list[npt.NDArray[np.int64]])
    clients = fedopt.federate((inputs, labels), parts)
    task = fedopt.own_task(network, nn.functional.cross_entropy, clients, (inputs, labels))

    result = fedopt.run(task, algorithm=drift_corrected, rounds=3, config={"client.mu": 0.2})
    assert_type(result, fedopt.RunResult)
    assert_type(result.last, float | None)
    assert_type(result.value, float | None)
    assert_type(result.train_loss, float | None)
    assert_type(result.x, Tensor)
    assert_type(result.x_sha256, str)
    assert_type(result.path, Path | None)
    assert_type(result.model, nn.Module)

    fedopt.run(task, algorithm=fedsign, rounds=3, callback=stop_early)
    evaluation = fedopt.evaluate(result)
    assert_type(evaluation, fedopt.Evaluation)
    assert_type(evaluation.by_client, dict[str, float | None])
    assert_type(evaluation.percentiles, dict[int, float | None])

    comparison = fedopt.compare(task, ["fedavg", "fedyogi"], rounds=2, seeds=range(2), out="comparison")
    assert_type(comparison, fedopt.RunGroup)
    assert_type(comparison.results, list[fedopt.RunResult])
    assert_type(comparison.report, Path | None)
    assert_type(comparison.failures, list[str])

    tuned = fedopt.sweep(task, ["fedavg"], {"client_lr": [-1, 0]}, rounds=2, out="sweep")
    assert_type(tuned, fedopt.TuningResult)
    best = tuned.best["fedavg"]
    assert_type(best.settings, dict[str, Any])  # of any type, as in config.toml

    loaded = fedopt.load("comparison/fedavg/seed-0", model=network)
    assert_type(loaded, fedopt.LoadedRun)
    assert_type(loaded.model, nn.Module)
    assert_type(loaded.round, int)
    assert_type(fedopt.export("comparison/fedavg/seed-0", task=task), list[Path])
    assert_type(fedopt.report("comparison"), Path)
    assert_type(fedopt.__version__, str)
    with fedopt.workers(1):
        pass
    try:
        fedopt.run("cifar1", rounds=1)
    except fedopt.UserError as error:
        print(error)


if __name__ == "__main__":
    main()
