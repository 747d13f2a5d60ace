"""The registry of tasks: the paper's seven and two small ones. A task has the same lowercase name everywhere.

A user-defined task is named by a reference such as `my_project.tasks:digits`.
"""

from dataclasses import replace
from functools import lru_cache

from fedopt.errors import ConfigError, UserCodeError, unknown
from fedopt.references import call_user_function, is_reference, load_object
from fedopt.tasks.base import LogRange, PaperSettings, Task
from fedopt.tasks.cifar import CIFAR10, CIFAR100
from fedopt.tasks.emnist import EMNIST_AE, EMNIST_CR
from fedopt.tasks.shakespeare import SHAKESPEARE
from fedopt.tasks.stackoverflow import SO_LR, SO_NWP
from fedopt.tasks.synthetic import SYNTHETIC_LR, SYNTHETIC_MLP

_ALL = (CIFAR10, CIFAR100, EMNIST_CR, EMNIST_AE, SHAKESPEARE, SO_NWP, SO_LR, SYNTHETIC_LR, SYNTHETIC_MLP)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}
PAPER_TASKS: dict[str, Task] = {name: task for name, task in TASKS.items() if task.paper is not None}

__all__ = ["PAPER_TASKS", "TASKS", "LogRange", "PaperSettings", "Task", "find_task", "task_name"]


def find_task(task: str | Task) -> Task:
    """Return the task with this name or reference. A task is returned as it is."""
    if isinstance(task, Task):
        if task.name in TASKS and task is not TASKS[task.name]:
            raise ConfigError(
                f"{task.name} is the name of a built-in task; give your task another name", keys=("name",)
            )
        return task
    if not isinstance(task, str):
        raise ConfigError(
            f"task is of type {type(task).__name__}; define a task with "
            "fedopt.own_task(model, loss, clients, test)",
            keys=("task",),
        )
    if is_reference(task):
        return _load_task(task)
    if task not in TASKS:
        raise unknown("task", task, TASKS, also="module:name of your own task")
    return TASKS[task]


def task_name(task: str | Task) -> str:
    """The name of a task in config.toml, in tables and in paths."""
    return task if isinstance(task, str) else find_task(task).name


@lru_cache
def _load_task(reference: str) -> Task:
    """Import a task, or the function that builds it. The reference becomes its name."""
    target = load_object(reference, "task")
    if not isinstance(target, Task) and callable(target):
        target = call_user_function(target, reference, "task")
    if not isinstance(target, Task):
        raise UserCodeError(
            f"task {reference!r} is of type {type(target).__name__}; expected a task from fedopt.own_task, "
            "or a function that returns one",
            reference=reference,
        )
    return replace(target, name=reference)
