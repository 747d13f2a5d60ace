"""Time of given matrix products, with one single-threaded process per core running at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from fedopt.bench.matrix_products import MatrixProduct
from fedopt.engine.worker_server import worker_environment
from fedopt.errors import WorkerError

_SECONDS = 0.5  # minimum length of a measurement; it covers at least one pass over all products


class GemmProcesses:
    """Processes that compute the matrix products of one training step on request."""

    def __init__(self, products: Sequence[MatrixProduct], workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = []
        with worker_environment():
            for _ in range(workers):
                connection, remote = context.Pipe()
                process = context.Process(target=_serve, args=(remote, list(products)), daemon=True)
                process.start()
                remote.close()
                self._processes.append((process, connection))
        self._measure(0.0)  # the first pass allocates memory and does not count

    def step_seconds(self) -> float:
        """Return the mean time of one pass over the products while all processes compute."""
        seconds = self._measure(_SECONDS)
        return sum(seconds) / len(seconds)

    def _measure(self, minimum_seconds: float) -> list[float]:
        try:
            for _, connection in self._processes:
                connection.send(minimum_seconds)
            return [connection.recv() for _, connection in self._processes]
        except (EOFError, OSError):
            raise WorkerError(
                "a process that computes matrix products ended, possibly out of memory; use fewer --workers"
            ) from None

    def close(self) -> None:
        for process, connection in self._processes:
            connection.close()
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(connection: Connection[Any, Any], products: list[MatrixProduct]) -> None:
    torch.set_num_threads(1)
    operands = [_allocate_operands(product) for product in products]
    try:
        while True:
            minimum_seconds = connection.recv()
            passes, start = 0, time.perf_counter()
            while not passes or time.perf_counter() - start < minimum_seconds:
                for product, (a, b, out) in zip(products, operands, strict=True):
                    for _ in range(product.times):
                        torch.mm(a, b, out=out)
                passes += 1
            connection.send((time.perf_counter() - start) / passes)
    except (EOFError, OSError):
        return


def _allocate_operands(product: MatrixProduct) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Allocate matrices with the memory layout of a step: weights by output, activations by example."""
    _, m, k, n, _ = product
    if product.result == "outputs":
        a, b = torch.randn(m, k), torch.randn(n, k).t()
    elif product.result == "weight":
        a, b = torch.randn(k, m).t(), torch.randn(k, n)
    else:
        a, b = torch.randn(m, k), torch.randn(k, n)
    return a, b, torch.empty(m, n)
