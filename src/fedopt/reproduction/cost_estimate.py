"""Estimates of the time and the disk space that runs need.

The time is rounds x cohort x local steps, plus the evaluations, divided by the cores. The CPU time of a step
and of an evaluation batch is measured for each task, so other work on the machine changes it little. SCAFFOLD
takes longer: a client computes with dense vectors in each step, and stores one at the end. The work of the
server is small and not included.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from fedopt.algorithms.base import Round
from fedopt.engine.evaluate import fixed_sample, is_evaluated
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.model_evaluation import EVAL_BATCH
from fedopt.engine.torch_state import single_thread
from fedopt.engine.worker import ClientJob, SampleJob, Worker
from fedopt.errors import DiskError
from fedopt.reproduction.data_sources import dataset_sizes
from fedopt.reproduction.plan import PlannedRun
from fedopt.reproduction.published import ADAPTIVE, DATASET_BY_TASK, DATASETS, SCAFFOLD, paper_settings
from fedopt.reproduction.results import RunReader
from fedopt.runs.build_problem import build_problem
from fedopt.runs.client_table import DiskTable, check_disk, client_state_bytes
from fedopt.runs.config import Config
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

STARTUP_SECONDS = 0.6  # of a run, before its first and after its last round
_TIMED_STEPS = 2
_MANY_STEPS, _LONG_STEP = 10, 0.1  # steps that show what SCAFFOLD adds to each; fewer if one takes this long
_REPEATS, _REPEAT_SECONDS = 4, 1.0  # of a measurement: at least two, then more within this time
_TIMED_CLIENTS = 3  # generating all clients of a task would take seconds
_SAME_MODEL = {"cifar10": "cifar100"}  # ResNet-18 takes the longest to time
# Vectors in a checkpoint: the model and the state of the server optimizer.
_CHECKPOINT_VECTORS = {**dict.fromkeys(ADAPTIVE, 3), "fedavgm": 2, SCAFFOLD: 2}


class StepTimes(NamedTuple):
    """Seconds on one core, and the size of the model."""

    step: float  # one local step of a client
    evaluation: float  # EVAL_BATCH test examples
    parameters: int = 0
    scaffold_step: float = 0.0  # what SCAFFOLD adds to a step
    scaffold_client: float = 0.0  # what SCAFFOLD adds to a client

    def client(self, algorithm: str, steps: float) -> float:
        """Return the time of a client in a round."""
        if algorithm != SCAFFOLD:
            return steps * self.step
        return steps * (self.step + self.scaffold_step) + self.scaffold_client


def measure_step_times(
    tasks: Iterable[str], on_task: Callable[[str], None] = lambda task: None
) -> dict[str, StepTimes]:
    """Time a step and an evaluation of each task in this process, on synthetic data."""
    times: dict[str, StepTimes] = {}
    for task in tasks:
        timed = _SAME_MODEL.get(task, task)
        if timed not in times:
            on_task(timed)
            times[timed] = _measure(timed)
        times[task] = times[timed]
    return times


def _measure(task: str) -> StepTimes:
    problem = build_problem(TASKS[task], resolve(TASKS[task], "fedavg", {"data.clients": _TIMED_CLIENTS}))
    federation = problem.federation()
    examples = min(EVAL_BATCH, int(federation.test.sizes.sum()))
    sample, x = fixed_sample(federation.test, examples), initial_vector(problem)

    def client(steps: int, algorithm: str = "fedavg") -> float:
        settings = {"data.clients": _TIMED_CLIENTS, "client.steps": steps, "clients_per_round": 1}
        problem = build_problem(TASKS[task], resolve(TASKS[task], algorithm, settings))
        worker, kept = Worker(problem, federation, sample), problem.algorithm().keeps
        vectors = tuple(x if name == "x" else torch.zeros_like(x) for name in problem.algorithm().sends)
        job = ClientJob(Round(0, 1e-3, 1.0, 1, _TIMED_CLIENTS), 0)

        def train() -> None:
            _, returned = worker.run(job, vectors, None)
            if kept:
                with suppress(OSError, DiskError), TemporaryDirectory() as directory:  # it may be full
                    DiskTable(Path(directory), kept, 0).write(0, 0, returned[-len(kept) :])

        return _fastest(train)

    with single_thread():
        worker = Worker(problem, federation, sample)
        evaluation = _fastest(lambda: worker.run(SampleJob(0, examples), (x,), None)) * EVAL_BATCH / examples
        step = client(_TIMED_STEPS) / _TIMED_STEPS
        many = _MANY_STEPS if step < _LONG_STEP else _TIMED_STEPS
        one, more = (client(n, SCAFFOLD) - n * step for n in (1, many))
        added_step = max(0.0, (more - one) / (many - 1))
        return StepTimes(step, evaluation, len(x), added_step, max(0.0, one - added_step))


def _fastest(work: Callable[[], object]) -> float:
    """Return the smallest CPU time of several repetitions. The first ones take longer: memory is new."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < _REPEATS and sum(times) < _REPEAT_SECONDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@cache
def epoch_steps(task: str) -> float:
    """Return the mean number of steps in a client's epoch. The synthetic data has the paper's sizes."""
    batch_size = paper_settings(task).batch_size
    return float(np.ceil(TASKS[task].federation("synthetic").train.sizes / batch_size).mean())


def run_seconds(run: PlannedRun, times: StepTimes) -> float:
    """Estimate the time of one run on one core."""
    settings = run.settings
    rounds = int(settings["rounds"])
    sizes, batch_size = DATASETS[DATASET_BY_TASK[run.task]], paper_settings(run.task).batch_size
    if "client.steps" in settings:
        steps = float(settings["client.steps"])
    elif run.algorithm == "centralized":
        share = settings.get("data.clients", 0) / sizes.train_clients or 1.0
        steps = share * sizes.train_examples / batch_size
    else:
        steps = epoch_steps(run.task)
    every, last_every = settings["eval.every"], settings["eval.last_every"]
    evaluations = sum(is_evaluated(t, rounds, every, last_every) for t in range(rounds + 1))
    examples = float(evaluations) * (settings["eval.sample"] or sizes.test_examples)
    examples += sizes.test_examples if settings["eval.final"] == "full" else 0
    clients = rounds * float(settings.get("clients_per_round", 1))
    return estimate_seconds(times, run.algorithm, clients, steps, examples)


def estimate_seconds(
    times: StepTimes, algorithm: str, clients: float, steps: float, examples: float
) -> float:
    """Estimate the time of one run on one core.

    `clients` is the number of clients in all rounds, `steps` their mean number of steps in a round, and
    `examples` the number of test examples in all evaluations.
    """
    training = clients * times.client(algorithm, steps)
    return STARTUP_SECONDS + training + examples / EVAL_BATCH * times.evaluation


def total_seconds(runs: Iterable[PlannedRun], times: Mapping[str, StepTimes], cores: int) -> float:
    """Estimate the time of several runs in parallel. Runs that differ only in rates take the same time."""
    known: dict[tuple[object, ...], float] = {}
    total = 0.0
    for run in runs:
        key = (run.task, run.algorithm, run.settings_items)
        if key not in known:
            known[key] = run_seconds(run, times[run.task])
        total += known[key]
    return total / cores


def run_bytes(config: Config, parameters: int, population: int) -> float:
    """Estimate the disk space of a run: its checkpoints and the state that clients keep."""
    vectors = _CHECKPOINT_VECTORS.get(config.algorithm, 1) * config.checkpoint.keep
    keeps = 1 if config.algorithm == SCAFFOLD else 0
    return 4.0 * parameters * vectors + client_state_bytes(config, parameters, keeps, population)


def runs_that_fit_on_disk(reader: RunReader, run: PlannedRun) -> int:
    """Return how many runs like `run` the disk can hold, or raise a DiskError if it cannot hold one.

    A run performs the same check before its first round, but there the error would stop all runs.
    """
    trial = reader.trial(run)
    problem = build_problem(TASKS[run.task], trial.config)
    d, keeps = len(initial_vector(problem)), len(problem.algorithm().keeps)
    population = dataset_sizes(reader.plan.source(run.task)).train_clients
    directory = trial.path if trial.path.is_dir() else reader.out
    check_disk(directory, trial.config, d, keeps, population)
    free = shutil.disk_usage(directory).free
    return int(free // max(1.0, run_bytes(trial.config, d, population)))
