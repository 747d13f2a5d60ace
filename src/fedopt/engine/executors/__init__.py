"""Executors run the clients of a round.

serial       in this process, one client after the other
processes    in worker processes with one thread each; equal to `serial` to the bit
vectorised   many clients at once on one device; equal to `serial` up to rounding
compiled     many clients at once on the CPU, with compiled steps; equal to `serial` up to rounding
ray          on the machines of a Ray cluster; equal to `serial` to the bit
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.errors import ConfigError, unknown

EXECUTORS = ("processes", "serial", "vectorised", "compiled", "ray")
AUTO = "auto"  # compiled or processes, chosen by the problem (see `choice`)


@dataclass(frozen=True)
class ExecutorOptions:
    """The executor of a run and its options. Only `vectorised` and `compiled` change results."""

    name: str | None = None  # None: "processes" in a `workers` block and "serial" elsewhere
    workers: int | None = None  # None: one per core, or one for `vectorised` and `compiled`
    device: str = "cpu"
    ray_address: str | None = None  # "auto" or HOST:PORT; None: a cluster in this process
    ray_gpus: float | None = None  # that a worker reserves; None: one if the device is not the CPU

    @property
    def vectorised(self) -> str | None:
        """The device of the vectorised executor, "compiled", or None if another executor is used.

        The vectorised executor is used on every device except the CPU, and on the CPU on request. The device
        of a Ray worker is that of its node.
        """
        from fedopt.engine.executors.devices import check_device, choose_device

        if self.name == "ray":
            check_device(self.device, local=False)
            return None if self.device == "cpu" else self.device

        if self.name == "compiled":
            if self.device not in ("cpu", "auto"):
                raise ConfigError(
                    f"executor compiled uses the CPU, not {self.device}; leave out device, or use executor "
                    "vectorised",
                    keys=("device", "executor"),
                )
            return "compiled"
        device = choose_device(self.device)
        return device if device != "cpu" or self.name == "vectorised" else None


def available_cores() -> int:
    """Return the number of cores that this process may use.

    Returns:
        The number of cores, which is the default number of workers.

    Examples:
        >>> available_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _SharedWorkers:
    """The worker processes of a `workers` block."""

    def __init__(self, count: int) -> None:
        from fedopt.engine.executors.processes import Processes

        self.count = count
        self.executor = Processes(count)
        self.in_use = False


_shared: list[_SharedWorkers] = []  # of the open blocks, innermost last


@contextmanager
def workers(count: int | None = None) -> Iterator[None]:
    """Keep worker processes for all runs in a `with` block.

    Runs in the block use the executor "processes" unless they name another one. The workers start at once
    and end with the block.

    Args:
        count: number of processes; one per core by default.

    Returns:
        A context manager without a value.

    Examples:
        >>> with fedopt.workers(1):
        ...     for rate in (0.01, 0.1):
        ...         result = fedopt.run("synthetic_lr", rounds=1, config={"client.lr": rate})
    """
    _check_count(count)
    shared = _SharedWorkers(count or available_cores())
    shared.executor.start()
    _shared.append(shared)
    try:
        yield
    finally:
        _shared.remove(shared)
        shared.executor.close()


@contextmanager
def open_executor(options: ExecutorOptions, vectorised: str | None = None) -> Iterator[Executor]:
    """Open an executor and close it at the end. The workers of a `workers` block stay open.

    `vectorised` is this value of the run's configuration: a device, "compiled" or None.
    """
    workers, device = options.workers, vectorised
    name = options.name or ("processes" if _shared else "serial")
    if name not in EXECUTORS:
        raise unknown("executor", name, (*EXECUTORS, AUTO))
    _check_count(workers)
    _check_ray_options(options, name)
    shared = _shared[-1] if _shared and name == "processes" and not device else None
    if shared is not None and not shared.in_use:  # a callback may start a run inside a run
        if workers not in (None, shared.count):
            raise ConfigError(
                f"workers={workers} differs from the {shared.count} workers of the surrounding block; leave "
                "one of them out",
                keys=("workers",),
            )
        shared.in_use = True
        try:
            yield shared.executor
        finally:
            shared.in_use = False
        return
    executor: Executor
    if name == "ray":
        from fedopt.engine.executors.ray.executor import RayExecutor

        gpus = options.ray_gpus if options.ray_gpus is not None else (1.0 if device else 0.0)
        executor = RayExecutor(workers, options.ray_address, device, gpus)
    elif device or name in ("vectorised", "compiled"):
        from fedopt.engine.executors.vectorised import Vectorised

        compiles = "compiled" in (device, name)
        executor = Vectorised(
            "cpu" if compiles or device is None else device, compiles=compiles, workers=workers or 1
        )
    elif name == "serial":
        executor = Serial()
    else:
        from fedopt.engine.executors.processes import Processes

        executor = Processes(workers or available_cores())
    try:
        yield executor
    finally:
        executor.close()


def _check_ray_options(options: ExecutorOptions, name: str) -> None:
    given = {"ray_address": options.ray_address, "ray_gpus": options.ray_gpus}
    unused = [key for key, value in given.items() if value is not None and name != "ray"]
    if unused:
        raise ConfigError(f"{unused[0]} needs the executor ray, not {name}; set executor=ray", keys=unused)
    gpus = options.ray_gpus
    if gpus is not None and not (0 < gpus <= 1 or (gpus > 1 and float(gpus).is_integer())):
        raise ConfigError(
            f"ray_gpus must be between 0 and 1, or a whole number, got {gpus}", keys=("ray_gpus",)
        )


def _check_count(workers: int | None) -> None:
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ConfigError(f"workers must be an integer of at least 1, got {workers!r}", keys=("workers",))
