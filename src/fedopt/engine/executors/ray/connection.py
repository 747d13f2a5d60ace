"""Connect to a Ray cluster, or start one in this process.

A cluster of this process uses the local cores, listens on the loopback interface only and ends with the
connection. Ray's messages do not reach the terminal; they are in the logs of the session, /tmp/ray.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedopt.errors import ClusterError, missing_extra

LOCAL = "local"
SYSTEM_CONFIG = {"worker_niceness": 0}  # Ray's default of 15 would slow clients down beside other programs
_SECONDS_TO_ANSWER = 5.0
# An HTTP/2 client's first bytes: a fixed text and an empty SETTINGS frame, whose type is 4.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_TYPE = 4


def import_ray() -> Any:
    """Import Ray without its usage statistics and messages."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise missing_extra("the executor ray", "ray", "ray") from error
    return ray


@contextmanager
def connected(address: str | None, cores: int, runtime_env: dict[str, Any] | None = None) -> Iterator[None]:
    """Connect to the cluster at `address`, or start one with `cores`, for the time of the block.

    `address` is "auto" or HOST:PORT. A connection that the program has already is used and stays open.
    """
    ray = import_ray()
    if ray.is_initialized():
        _check_present_connection(ray, address)
        yield
        return
    with _quiet(ray):
        with _kept_signal_handlers():
            if address is None:
                _start(ray, cores)
            else:
                _connect(ray, address, runtime_env)
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces by one that exits at once."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _start(ray: Any, cores: int) -> None:
    try:
        with _interface(ray, loopback=True):
            ray.init(
                LOCAL,
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                _system_config=SYSTEM_CONFIG,
            )
    except Exception as error:
        raise ClusterError(f"Ray does not start on this machine: {_one_line(error)}") from error


@contextmanager
def _interface(ray: Any, loopback: bool) -> Iterator[None]:
    """Let Ray use the loopback interface. By default it replaces 127.0.0.1 by another address."""
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = before and not loopback
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _connect(ray: Any, address: str, runtime_env: dict[str, Any] | None) -> None:
    if "://" in address:
        raise ClusterError(
            f"the Ray address {address!r} is not of the form HOST:PORT or 'auto'; run the command on a "
            "machine of the cluster and name the port of `ray start --head`, which is 6379 by default",
            address=address,
        )
    with _interface(ray, loopback=False):
        found = _find(ray, address)
    name = found if address == "auto" else address  # Ray replaces 127.0.0.1 by another address
    failure = _ask(found, name)
    with _interface(ray, loopback=failure is not None):
        if failure is not None:  # a cluster that listens on the loopback interface only
            found = _find(ray, address)
            if _ask(found, name) is not None:
                raise failure
        try:
            ray.init(found, log_to_driver=False, logging_level=logging.CRITICAL, runtime_env=runtime_env)
        except Exception as error:
            ray.shutdown()
            raise _connection_error(name, error) from error


def _find(ray: Any, address: str) -> str:
    """Return the cluster's address as HOST:PORT."""
    try:
        found = ray._private.services.canonicalize_bootstrap_address(address)
    except (ValueError, OSError) as error:
        raise ClusterError(
            f"the Ray address {address!r} is not of the form HOST:PORT or 'auto'", address=address
        ) from error
    if found is None or not found.rpartition(":")[2].isdigit():
        what = "no Ray cluster is running on this machine" if found is None else f"{address!r} has no port"
        raise ClusterError(
            f"{what}; start one with `ray start --head`, or name the address HOST:PORT of its head node",
            address=address,
        )
    return str(found)


def _ask(address: str, name: str) -> ClusterError | None:
    """Check in a few seconds that a gRPC server answers. Ray itself waits for more than a minute.

    Messages contain `name`, the address as the user wrote it.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(4)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "no answer"
        return ClusterError(
            f"no Ray cluster answers at {name} ({reason}); check `ray status` on its head node",
            address=name,
        )
    if len(answer) < 4 or answer[3] != _SETTINGS_TYPE:
        return ClusterError(f"{name} is not the address of a Ray cluster", address=name)
    return None


def _connection_error(address: str, error: Exception) -> ClusterError:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    for cause in causes:
        if "Version mismatch" in str(cause):
            versions = _one_line(cause).partition("Version mismatch: ")[2]
            return ClusterError(
                f"this process and the Ray cluster at {address} have different versions: {versions}; install "
                "the same ones everywhere",
                address=address,
            )
    return ClusterError(
        f"cannot connect to the Ray cluster at {address}: {_one_line(causes[-1])}; the command must run on "
        "a machine of the cluster",
        address=address,
    )


def _check_present_connection(ray: Any, address: str | None) -> None:
    present = ray.get_runtime_context().gcs_address
    if address not in (None, "auto") and not _is_same_address(ray, str(address), present):
        raise ClusterError(
            f"this program is connected to the Ray cluster at {present}, not to {address}; leave the address "
            "out, or call ray.shutdown() first",
            address=str(address),
        )


def _is_same_address(ray: Any, first: str, second: str) -> bool:
    """Whether two addresses are equal when localhost and 127.0.0.1 are replaced by this node's address."""
    with _interface(ray, loopback=False):
        try:
            return _find(ray, first) == _find(ray, second)
        except ClusterError:
            return False


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray from printing errors of nodes to stdout, which `log_to_driver` does not prevent."""
    worker = ray._private.worker
    before = worker._worker_logs_enabled
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
