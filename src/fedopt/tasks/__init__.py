"""The registry of the paper's tasks. A task has the same lowercase name everywhere."""

from fedopt.errors import unknown
from fedopt.tasks.base import Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP

_ALL = (CIFAR10, CIFAR100, EMNIST_CR, EMNIST_AE, SHAKESPEARE, SO_NWP, SO_LR)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}

__all__ = ["TASKS", "Task", "find_task"]


def find_task(name: str) -> Task:
    """Return the task with this name."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
