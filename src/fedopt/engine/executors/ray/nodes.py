"""The nodes of a cluster, and how their software differs from that of this process."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from fedopt.errors import ClusterError, one_line
from fedopt.processor import processor_model
from fedopt.version import __version__


class Node(NamedTuple):
    """A node of the cluster that is alive."""

    id: str
    name: str
    cpus: int
    gpus: float


class Environment(NamedTuple):
    """What the result of a client depends on, besides the problem."""

    fedopt: str
    torch: str
    python: str
    cpu: str  # the vector instructions that torch uses
    processor: str = ""  # the model of the CPU; earlier versions do not send it


# Nodes that differ in these are refused. Another model of the CPU changes only the rounding.
_REQUIRED = ("fedopt", "torch", "python", "cpu")


def read_environment() -> Environment:
    """Return the environment of this process."""
    version = ".".join(platform.python_version_tuple()[:2])
    instructions = torch.backends.cpu.get_cpu_capability()
    return Environment(__version__, torch.__version__, version, instructions, processor_model())


def live_nodes(ray: Any) -> list[Node]:
    """Return the nodes of the cluster that are alive, in a fixed order."""
    return [
        Node(
            id=node["NodeID"],
            name=f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})",
            cpus=int(node["Resources"].get("CPU", 0)),
            gpus=float(node["Resources"].get("GPU", 0)),
        )
        for node in sorted(ray.nodes(), key=lambda node: node["NodeID"])
        if node["Alive"]
    ]


def differences(here: Environment, there: Environment) -> list[str]:
    """Describe why a node with another environment cannot take part."""
    own, other = here._asdict(), there._asdict()
    return [f"{name} {other[name]} instead of {own[name]}" for name in _REQUIRED if own[name] != other[name]]


def describe_failure(error: Exception) -> str:
    """Describe an exception of Ray on one line: by its cause on the node, and without colours."""
    cause = getattr(error, "cause", None)
    return re.sub(r"\x1b\[[0-9;]*m", "", one_line(cause if isinstance(cause, Exception) else error))


def node_error(problems: Mapping[str, Iterable[str]]) -> ClusterError:
    """Build one error for all nodes that differ; `problems` describes them by node."""
    text = "; ".join(f"{node}: {', '.join(lines)}" for node, lines in problems.items())
    return ClusterError(
        f"these nodes of the Ray cluster cannot take part: {text}; install the same versions and data "
        "everywhere, or remove the nodes",
        nodes=problems,
    )
