"""The registry of tasks. One lowercase name is used everywhere: registry, config, directory, legend."""

from fedopt.tasks.base import Task
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR

TASKS: dict[str, Task] = {task.name: task for task in (EMNIST_CR, EMNIST_AE)}

__all__ = ["TASKS", "Task"]
