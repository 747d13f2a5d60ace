"""Execute a run: start or resume it, train, and record its metrics, checkpoints and result."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedopt.engine.evaluate import evaluate_clients, means
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.loop import Loop, Step, drive, train
from fedopt.engine.running_statistics import running_statistics
from fedopt.engine.torch_state import single_thread
from fedopt.errors import FedoptError
from fedopt.files import Log, no_log
from fedopt.formatting import count_noun
from fedopt.remote.location import Location
from fedopt.runs.callbacks import STOP, Callback
from fedopt.runs.interrupts import deferred_interrupts
from fedopt.runs.loggers import RunLogger
from fedopt.runs.metrics_log import finite_or_none
from fedopt.runs.open_run import OpenedRun, open_run
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.recorder import RunRecorder
from fedopt.runs.result import RunResult
from fedopt.runs.shared_data import SharedData
from fedopt.runs.small_runs import SMALL_RUN_SECONDS, training_seconds


def execute(
    prepared: PreparedRun,
    executor: Executor,
    *,
    out: Location | None = None,
    command: str = "",
    on_step: Callback | None = None,
    log: Log = no_log,
    warn: Log | None = None,
    on_phase: Log = no_log,
    tensorboard: bool = False,
    data: SharedData | None = None,
    until: int | None = None,
    log_small_run: Log | None = None,
    loggers: Sequence[RunLogger] = (),
) -> RunResult:
    """Execute a run. With `out`, write a run directory, or resume the run in it; it may be a URL.

    `on_step` is called after every round. If it returns `STOP`, the run ends with a checkpoint and the status
    "stopped"; a later call resumes the run. With `until`, the same happens after that round, with the status
    "pruned". Evaluations are those of a run of `config.rounds` rounds. `data` is the opened data of an
    earlier run in this process. `on_phase` is called with a short text before longer steps other than
    rounds. `warn` receives reports about damaged files and other versions; it is `log` by default. If the
    run fails, diverges or is interrupted, run.json records it. An interrupted round is undone, and the
    checkpoint is that of the last finished round. With `log_small_run`, a small run does not use `executor`
    (see `small_runs`), and the function receives a text that says so.
    """
    opened = open_run(
        prepared,
        out=out,
        command=command,
        log=log,
        warn=warn or log,
        tensorboard=tensorboard,
        data=data,
        loggers=loggers,
    )
    with opened as run:
        recorder, directory = run.recorder, run.recorder.directory
        if recorder.is_finished:
            log(f"{out} is finished: {count_noun(recorder.position.round, 'round')}")
            return recorder.result(directory.info.get("full_test") if directory else None)
        run.restart()
        if log_small_run is not None and _is_small(run):
            log_small_run("small run: using the serial executor instead of worker processes")
            executor = Serial()
        rounds = recorder.config.rounds
        last = rounds if until is None else min(until, rounds)
        if recorder.position.round < last or last == rounds:
            _load(run, executor, log, on_phase)
        return drive(training(run, executor, last, on_step, log, on_phase), executor)


def _is_small(run: OpenedRun) -> bool:
    """Whether the remaining rounds are too few to benefit from worker processes."""
    config, position, federation = run.recorder.config, run.recorder.position, run.data.federation
    seconds = training_seconds(
        config.rounds - position.round,
        config.clients_per_round,
        run.recorder.problem.local,
        federation,
        len(position.state.x),
        sum(array[:1].size for array in federation.train.client(0)),
    )
    return seconds < SMALL_RUN_SECONDS


def training(
    run: OpenedRun, executor: Executor, last: int, on_step: Callback | None, log: Log, on_phase: Log = no_log
) -> Loop[RunResult]:
    """Train up to round `last`, on an executor that has loaded the problem, and record the result."""
    recorder, config = run.recorder, run.recorder.config
    began = time.monotonic() - recorder.seconds
    status = ""  # of a run that stops before its last round

    def observe(step: Step) -> bool:
        """Record a step. Return whether the run ends."""
        nonlocal status
        with deferred_interrupts():
            recorder.add(step, time.monotonic() - began)
            recorder.fallback_reason = executor.fallback_reason
        stops = on_step is not None and _call(on_step, step, recorder) is STOP
        if recorder.is_stalled:  # the loop raises the error
            return False
        if recorder.has_stopped_improving:
            return True
        if step.position.round == last < config.rounds:
            status = "pruned"
        elif stops and step.position.round < config.rounds:
            status = "stopped"
        return bool(status)

    if recorder.position.round >= last < config.rounds:
        return recorder.pause("pruned")
    if not recorder.has_stopped_improving:
        yield from train(run.setup(executor), run.plan, recorder.position, observe)
    return recorder.pause(status) if status else finish_run(run, executor, began, log, on_phase)


def _load(run: OpenedRun, executor: Executor, log: Log, on_phase: Log) -> None:
    """Start the executor, and load the problem."""
    if run.recorder.position.round:
        log(f"continuing after round {run.recorder.position.round}")
    executor.report_to(log)
    on_phase("starting the workers" if not isinstance(executor, Serial) else "loading the data")
    executor.start()  # workers start while the sample is read or generated
    executor.load(run.recorder.problem, run.data.federation, run.data.sample)
    on_phase(f"first evaluation, {run.data.examples:,} test examples")


def _call(on_step: Callback, step: Step, recorder: RunRecorder) -> object:
    try:
        return on_step(step)
    except FedoptError:
        recorder.checkpoint()
        raise


def finish_run(
    run: OpenedRun, executor: Executor, began: float, log: Log, on_phase: Log = no_log
) -> RunResult:
    """Record the final result, after the last round or early stopping. `began` is the time of the start."""
    recorder, stop, message = run.recorder, run.recorder.config.stop, ""
    done = recorder.position.round
    if done < recorder.config.rounds:
        recorder.checkpoint()
        message = f"early stopping: {stop.metric} has not improved in {stop.patience} evaluations"
        log(f"{message}; stopped after round {done}")
    is_full = recorder.config.eval.final == "full"
    full_test = _measure_full_test(run, executor, log, on_phase) if is_full else None
    recorder.seconds = time.monotonic() - began
    return recorder.finish(full_test, message)


def _measure_full_test(
    run: OpenedRun, executor: Executor, log: Log, on_phase: Log
) -> dict[str, float | None]:
    split, state = run.data.federation.test, run.recorder.position.state
    clients = len(split.ids)
    log(f"measuring the full test set of {count_noun(clients, 'client')}")
    with single_thread():
        parts = evaluate_clients(
            executor,
            state.x,
            "test",
            split,
            running_statistics(state),
            on_progress=lambda done: on_phase(f"full test set, {done:,} of {clients:,} clients"),
        )
    return {name: finite_or_none(value) for name, value in means(parts).items()}
