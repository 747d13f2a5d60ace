"""A slot is a process that runs one trial after another, so that imports and data are loaded once.

Trials run side by side, one per core, each serially in its slot. A run's result does not depend on the
number of workers, so a trial beside idle cores is given those too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from functools import lru_cache
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.multiprocessing as multiprocessing

from fedopt.engine.executors.processes import worker_environment
from fedopt.engine.loop import Step
from fedopt.engine.problem import Problem
from fedopt.errors import Diverged, FedoptError, RunError, UserError
from fedopt.runs.build_problem import build_problem
from fedopt.runs.config import Config
from fedopt.runs.execute import Stop, execute
from fedopt.runs.shared_data import SharedData, open_data
from fedopt.sweep.grid import describe
from fedopt.sweep.growing_executor import Elastic
from fedopt.sweep.trials import Trial
from fedopt.tasks import find_task


class Order(NamedTuple):
    """Run a trial until it has `rounds`; after each round of `asks`, ask whether to go on."""

    trial: Trial
    rounds: int
    asks: tuple[int, ...] = ()
    work: int | None = None  # rounds that it will take where it is to be stopped for sure; else all

    @property
    def key(self) -> str:
        return str(self.trial.path)

    @property
    def goal(self) -> int:
        """The round at which it will end, as far as that is known."""
        return self.asks[0] if self.asks and self.work is not None else self.rounds


class Progress(NamedTuple):
    """A round is done."""

    round: int


class Question(NamedTuple):
    """Shall the trial go on after this round? Awaits an `Answer`."""

    round: int


class Ended(NamedTuple):
    """The trial is over: its directory says how. `failure` is what no trial should meet."""

    failure: FedoptError | None = None


class Answer(NamedTuple):
    """Whether a trial goes on."""

    goes_on: bool


class Widen(NamedTuple):
    """Use so many workers from now on."""

    workers: int


class Slot:
    """A process for trials, seen from here; it starts with its first order."""

    def __init__(self) -> None:
        self.order: Order | None = None  # what it is on
        self.workers = 1  # that it uses for it
        self._heard: list[tuple[float, int]] = []  # when a round was first and last heard of
        self._process: Any = None

    @property
    def connection(self) -> Connection[Any, Any]:
        return self._connection

    def begin(self, order: Order) -> None:
        if self._process is None:
            self._start()
        self.order, self._heard, self.workers = order, [], 1
        self.send(order)

    def send(self, message: Order | Answer | Widen) -> None:
        try:
            self._connection.send(message)
        except OSError:
            pass  # it has died; who listens to it finds out

    def advanced(self, round: int) -> None:
        self._heard[1:] = [(time.monotonic(), round)]

    def seconds_left(self) -> float:
        """How long its order will take by the pace so far; 0 while that is not known, or it has workers."""
        if self.order is None or len(self._heard) < 2 or self.workers > 1:
            return 0.0
        (began, first), (now, last) = self._heard
        return (now - began) / (last - first) * (self.order.goal - last) if last > first else 0.0

    def widen(self, workers: int) -> None:
        self.workers = workers
        self.send(Widen(workers))

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._life, their_life = context.Pipe()  # closes when this process ends, however it ends
        self._process = context.Process(target=_serve, args=(theirs, their_life))
        # An interrupt at the keyboard reaches every process of the terminal; the main one decides what it
        # means, and a mask is inherited from the first instruction on. The tracker, which multiprocessing
        # starts with its first process, lifts the mask, so it has to be there before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with worker_environment():
                self._process.start()
        except OSError as error:
            self._process = None
            raise RunError(
                f"cannot start a process for trials: {error.strerror}; use fewer --workers"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            their_life.close()

    def hang_up(self) -> None:
        """Tell it to end, without waiting."""
        if self._process is not None:
            self._life.close()

    def stop(self) -> int | None:
        """End it; a trial that is running can be continued from its last checkpoint. Its exit code."""
        if self._process is None:
            return None
        self.hang_up()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()
        if self.order is not None:
            _remove_unfinished(self.order.trial.path, self._process.pid)
        code: int | None = self._process.exitcode
        self._process = None
        return code


def _remove_unfinished(run: Path, pid: int) -> None:
    """Remove what a process that has ended was writing aside."""
    for aside in run.rglob(f".*.{pid}.tmp"):
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


def _serve(connection: Connection[Any, Any], life: Connection[Any, Any]) -> None:
    """The life of a slot: run what is ordered, end at once when the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    torch.set_num_threads(1)
    try:
        while True:
            message = connection.recv()
            if isinstance(message, Order):  # else workers for a trial that has just ended
                connection.send(_run(message, connection))
    except (EOFError, OSError):
        os._exit(1)


def _end_with(life: Connection[Any, Any]) -> None:
    try:
        life.recv()
    except (EOFError, OSError):
        os._exit(1)  # the trial's directory is whole at any moment


def _run(order: Order, connection: Connection[Any, Any]) -> Ended:
    trial, place = order.trial, Elastic()

    def on_step(step: Step) -> None:
        done = step.position.round
        if not _talk(connection, place, done, done in order.asks):
            raise Stop(f"stopped after round {done}: others were better")

    try:
        config = trial.config.model_copy(update={"rounds": order.rounds})
        task = find_task(config.task)
        problem = build_problem(task, config)
        execute(
            config,
            problem,
            place,
            out=trial.path,
            command=trial.command,
            better=task.better,
            on_step=on_step,
            tensorboard=trial.tensorboard,
            data=_opened(_Data.of(config, problem)),
        )
    except (Stop, Diverged):
        pass
    except FedoptError as error:
        return Ended(_named(trial, error))
    except Exception as error:  # in the data or the model: one line, and the sweep stops
        return Ended(_named(trial, RunError(f"{type(error).__name__}: {' '.join(str(error).split())}")))
    finally:
        place.close()
    return Ended()


def _talk(connection: Connection[Any, Any], place: Elastic, done: int, asks: bool) -> bool:
    """Tell of a round and take what is said; whether the trial goes on."""
    try:
        connection.send(Progress(done))
        if asks:
            connection.send(Question(done))
        while asks or connection.poll():
            message = connection.recv()
            if isinstance(message, Answer):
                return message.goes_on
            place.widen(message.workers)
    except (EOFError, OSError):
        os._exit(1)  # nobody is there any more
    return True


def _named(trial: Trial, error: FedoptError) -> FedoptError:
    """The error with the trial that met it."""
    where = "" if str(trial.path) in str(error) else f" ({trial.path})"
    kind = UserError if isinstance(error, UserError) else RunError
    return kind(f"trial {trial.config.algorithm} {describe(trial.point)}{where}: {error}")


class _Data:
    """A problem's data, equal to that of another trial with the same options."""

    def __init__(self, key: str, problem: Problem, examples: int) -> None:
        self.key, self.problem, self.examples = key, problem, examples

    @classmethod
    def of(cls, config: Config, problem: Problem) -> _Data:
        parts = [config.task, config.algorithm == "centralized", config.data, config.eval.sample]
        return cls(json.dumps(parts, sort_keys=True), problem, config.eval.sample)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Data) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=2)
def _opened(data: _Data) -> SharedData:
    return open_data(data.problem, data.examples)
