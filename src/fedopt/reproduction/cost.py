"""How long an artifact takes here: a local step and an evaluation batch of each task, timed, times the work.

The estimate is rounds x cohort x steps of a client, and the evaluations, over the cores. It leaves out what
the server does, which is little beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from fedopt.algorithms.base import Round
from fedopt.engine.evaluate import fixed_sample, is_evaluated
from fedopt.engine.worker import EVAL_BATCH, ClientJob, Runner, SampleJob, initial_vector, single_thread
from fedopt.reproduction.published import ADAPTIVE, DATASET_OF, DATASETS, SCAFFOLD, settings
from fedopt.reproduction.study import Spec
from fedopt.runs.build_problem import build_problem
from fedopt.runs.client_table import client_state_bytes
from fedopt.runs.config import Config, resolve
from fedopt.tasks import TASKS

START = 0.6  # seconds that a trial takes before its first round and after its last
_STEPS = 2  # timed, after one that is not
_CLIENTS = 3  # generated for it; all of a task's would take seconds
_EVALUATED = 20  # examples
_ALIKE = {"cifar10": "cifar100"}  # the same network, which takes the longest to time
_DAY = 86400.0
# vectors of a checkpoint: the model and what the server keeps
_CHECKPOINTED = {**dict.fromkeys(ADAPTIVE, 3), "fedavgm": 2, SCAFFOLD: 2}


class Speed(NamedTuple):
    """Seconds on one core."""

    step: float  # of a client
    evaluation: float  # of EVAL_BATCH test examples
    parameters: int = 0  # of the model


def calibrate(tasks: Iterable[str], tell: Callable[[str], None] = lambda task: None) -> dict[str, Speed]:
    """Time the work of each task in this process, on generated data."""
    speeds = {}
    for task in tasks:
        alike = _ALIKE.get(task, task)
        if alike not in speeds:
            tell(alike)
            speeds[alike] = _measured(alike)
        speeds[task] = speeds[alike]
    return speeds


def _measured(task: str) -> Speed:
    def seconds(steps: int) -> tuple[Runner, float]:
        chosen = {"data.clients": _CLIENTS, "client.steps": steps, "clients_per_round": 1}
        problem = build_problem(TASKS[task], resolve(TASKS[task], "fedavg", chosen))
        runner = Runner(problem, federation, sample)
        began = time.perf_counter()
        runner.run(ClientJob(Round(0, 1e-3, 1.0, 1, _CLIENTS), 0), (x,), None)
        return runner, time.perf_counter() - began

    problem = build_problem(TASKS[task], resolve(TASKS[task], "fedavg", {"data.clients": _CLIENTS}))
    federation = problem.federation()
    test = federation.test
    count = min(_EVALUATED, int(test.sizes.sum()))
    sample, x = fixed_sample(test, count), initial_vector(problem)
    with single_thread():
        seconds(1)
        runner, spent = seconds(_STEPS)
        began = time.perf_counter()
        runner.run(SampleJob(0, count), (x,), None)
        return Speed(spent / _STEPS, (time.perf_counter() - began) * EVAL_BATCH / count, len(x))


@cache
def epoch_steps(task: str) -> float:
    """Mean steps of a client in an epoch, by the sizes of the synthetic twin, which are the paper's."""
    size = settings(task).batch_size
    return float(np.ceil(TASKS[task].federation("synthetic").train.sizes / size).mean())


def trial_seconds(spec: Spec, speed: Speed) -> float:
    """The time of one run on one core."""
    chosen = dict(spec.settings)
    rounds = int(chosen["rounds"])
    statistics, batch = DATASETS[DATASET_OF[spec.task]], settings(spec.task).batch_size
    if "client.steps" in chosen:
        steps = float(chosen["client.steps"])
    elif spec.algorithm == "centralized":
        share = chosen.get("data.clients", 0) / statistics.train_clients or 1.0
        steps = share * statistics.train_examples / batch
    else:
        steps = epoch_steps(spec.task)
    every, last_every = chosen["eval.every"], chosen["eval.last_every"]
    evaluations = sum(is_evaluated(t, rounds, every, last_every) for t in range(rounds + 1))
    examples = float(evaluations) * (chosen["eval.sample"] or statistics.test_examples)
    examples += statistics.test_examples if chosen["eval.final"] == "full" else 0
    trained = rounds * float(chosen.get("clients_per_round", 1)) * steps * speed.step
    return START + trained + examples / EVAL_BATCH * speed.evaluation


def total_seconds(specs: Iterable[Spec], speeds: Mapping[str, Speed], cores: int) -> float:
    """The time of some runs side by side; runs alike in all but rates cost the same."""
    known: dict[tuple[object, ...], float] = {}
    total = 0.0
    for spec in specs:
        kind = (spec.task, spec.algorithm == "centralized", spec.settings)
        if kind not in known:
            known[kind] = trial_seconds(spec, speeds[spec.task])
        total += known[kind]
    return total / cores


def trial_bytes(config: Config, parameters: int, population: int) -> float:
    """The disk space that a run needs: its checkpoints and the state that clients keep."""
    checkpoints = 4.0 * parameters * _CHECKPOINTED.get(config.algorithm, 1) * config.checkpoint.keep
    keeps = 1 if config.algorithm == SCAFFOLD else 0
    return checkpoints + client_state_bytes(config, parameters, keeps, population)
