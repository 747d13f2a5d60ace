"""The machine's rate on given matrix products: one process of one thread per core, all at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from fedopt.bench.products import Product
from fedopt.engine.executors.processes import worker_environment
from fedopt.errors import RunError

_SECONDS = 0.5  # of one measurement, and at least one pass over all products


class Products:
    """Processes that go through the products of a step when they are asked to."""

    def __init__(self, products: Sequence[Product], workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._sides = []
        with worker_environment():
            for _ in range(workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, list(products)), daemon=True)
                process.start()
                theirs.close()
                self._sides.append((process, ours))
        self._ask(0.0)  # first touch of the memory

    def step_seconds(self) -> float:
        """The time of one pass over the products, when as many run at once as there are workers."""
        seconds = self._ask(_SECONDS)
        return sum(seconds) / len(seconds)

    def _ask(self, least: float) -> list[float]:
        try:
            for _, connection in self._sides:
                connection.send(least)
            return [connection.recv() for _, connection in self._sides]
        except (EOFError, OSError):
            raise RunError("a process that measures matrix products ended; is there enough memory?") from None

    def close(self) -> None:
        for process, connection in self._sides:
            connection.close()
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Products:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(connection: Connection[Any, Any], products: list[Product]) -> None:
    torch.set_num_threads(1)
    operands = [_operands(product) for product in products]
    try:
        while True:
            least = connection.recv()
            passes, start = 0, time.perf_counter()
            while not passes or time.perf_counter() - start < least:
                for product, (a, b, out) in zip(products, operands, strict=True):
                    for _ in range(product.times):
                        torch.mm(a, b, out=out)
                passes += 1
            connection.send((time.perf_counter() - start) / passes)
    except (EOFError, OSError):
        return


def _operands(product: Product) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Matrices that lie in memory as they do in a step: weights by output, activations by example."""
    _, m, k, n, _ = product
    if product.of == "outputs":
        a, b = torch.randn(m, k), torch.randn(n, k).t()
    elif product.of == "weight":
        a, b = torch.randn(k, m).t(), torch.randn(k, n)
    else:
        a, b = torch.randn(m, k), torch.randn(k, n)
    return a, b, torch.empty(m, n)
