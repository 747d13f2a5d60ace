"""The Ray actor that trains clients: one process with one thread, one model and one open dataset.

Vectors travel as NumPy arrays, which Ray stores without a copy.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedopt.algorithms.base import Vector
from fedopt.data import Arrays
from fedopt.data.store.stored import manifest_checksum
from fedopt.engine.executors.base import BlockResult, Executor
from fedopt.engine.executors.ray.connection import import_ray
from fedopt.engine.executors.ray.nodes import Environment, read_environment
from fedopt.engine.executors.serial import Serial
from fedopt.engine.worker import Job
from fedopt.errors import FedoptError, WorkerError, one_line

VectorArrays = tuple[NDArray[np.float32], ...]


class Loaded(NamedTuple):
    """The answer of a slot that has loaded a problem."""

    checksum: str | None  # of the store's manifest


class Slot:
    """Trains clients of one problem after another. Errors are returned, not raised."""

    def __init__(self, directory: str, path: Sequence[str], device: str | None) -> None:
        """Use the working directory and the import path of the driver, where this node has them."""
        if os.path.isdir(directory):
            os.chdir(directory)
        sys.path += [entry for entry in path if entry not in sys.path]
        torch.set_num_threads(1)
        self._executor: Executor = _make_executor(device)
        self._broadcast = -1  # number of the vectors in `_sent`
        self._sent: tuple[Vector, ...] = ()

    def environment(self) -> Environment:
        """Return the software of this process."""
        return read_environment()

    def load(self, references: Sequence[Any], sample: Arrays) -> Loaded | FedoptError:
        """Open the data and build the model of a problem, given as a list with one reference."""
        try:
            [problem] = import_ray().get(references)
        except Exception as error:  # a module that this node cannot import
            return WorkerError(
                f"this node cannot import part of the problem: {one_line(error)}; install the module on all "
                "nodes, or send it with ray.init(runtime_env={'working_dir': '.'})"
            )
        try:
            federation = problem.federation()
            self._executor.load(problem, federation, sample)
            return Loaded(manifest_checksum(federation.source))
        except FedoptError as error:
            return error
        except Exception as error:  # in the user's model or data
            failure = WorkerError(f"loading the problem: {one_line(error)}")
            failure.add_note(traceback.format_exc())
            return failure

    def train_block(
        self, jobs: Sequence[Any], kept: Mapping[int, VectorArrays], broadcast: int, *sent: Any
    ) -> list[BlockResult] | FedoptError:
        """Train the clients of a block. Return one sum, or several if the device cannot hold all clients.

        The vectors that clients keep are arrays.
        """
        results: list[BlockResult] = []
        try:
            for block in self._executor.train(jobs, self._receive(broadcast, sent), partial(_read, kept)):
                reports = [report._replace(rows=None) for report in block.reports]  # the sum has the rows
                arrays: Any = {client: to_arrays(vectors) for client, vectors in block.kept.items()}
                results.append(BlockResult(reports, block.total, arrays))
        except FedoptError as error:
            return error
        return results

    def run(
        self, jobs: Sequence[Job], kept: Mapping[int, VectorArrays], broadcast: int, *sent: Any
    ) -> list[tuple[Any, VectorArrays]] | FedoptError:
        """Run jobs one after the other and return the result of each."""
        try:
            results = self._executor.map(jobs, self._receive(broadcast, sent), partial(_read, kept))
            return [(reply, to_arrays(vectors)) for reply, vectors in results]
        except FedoptError as error:
            return error

    def _receive(self, broadcast: int, sent: Sequence[NDArray[np.float32]]) -> tuple[Vector, ...]:
        """Copy the vectors of a round, once."""
        if broadcast != self._broadcast:
            self._sent, self._broadcast = to_vectors(tuple(sent)), broadcast
        return self._sent


def to_arrays(vectors: Sequence[Vector]) -> VectorArrays:
    """Return vectors as arrays with the same memory."""
    return tuple(vector.numpy() for vector in vectors)


def to_vectors(arrays: VectorArrays) -> tuple[Vector, ...]:
    """Copy arrays, because Ray's memory is read-only and its alignment may vary."""
    return tuple(torch.tensor(array) for array in arrays)


def _read(kept: Mapping[int, VectorArrays], client: int) -> tuple[Vector, ...] | None:
    return to_vectors(kept[client]) if client in kept else None


def _make_executor(device: str | None) -> Executor:
    if device is None:
        return Serial()
    from fedopt.engine.executors.devices import choose_device
    from fedopt.engine.executors.vectorised import Vectorised

    return Vectorised(choose_device(device))
