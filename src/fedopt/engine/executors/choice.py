"""Choose an executor by the problem: `executor = auto`.

For a small model, the time of a local step is mostly overhead: about 0.5 ms in a process that trains one
client after the other. Clients that train together in a compiled step share it. For a large model, the matrix
products take most of the time, and worker processes compute them on all cores.

A step has three times the operations of its forward pass, for each example of a batch. The limit follows from
measurements (docs/performance.md). In processor time, a compiled round takes a third of a serial one at
4 million operations, and as long at 17 million. Two worker processes take at least half of the serial time,
so the limit is below that point. The choice does not depend on the machine, on the number of
rounds or on what is installed, because it is part of a run's configuration.
"""

from __future__ import annotations

from fedopt.engine.problem import Problem
from fedopt.engine.stacked.worker import StackedWorker
from fedopt.formatting import format_count

MAX_OPERATIONS = 5_000_000  # of a client's step


def choose_executor(problem: Problem) -> tuple[str, str]:
    """Return "compiled" or "processes", and the reason."""
    worker = StackedWorker(problem, problem.federation(), (), compiles=True)
    plan = worker.plan
    if plan.reason:
        return "processes", f"clients cannot train as one stack ({plan.reason})"
    operations = 3 * plan.flops * worker.rows
    is_small = operations <= MAX_OPERATIONS
    name, comparison = ("compiled", "at most") if is_small else ("processes", "more than")
    count, limit = format_count(operations), format_count(MAX_OPERATIONS)
    return name, f"a step of a client has {count} operations, {comparison} {limit}"
