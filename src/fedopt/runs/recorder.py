"""The records of a run while it trains: its position, metrics, checkpoints and result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fedopt.algorithms import State
from fedopt.engine.client_state import ClientMemory, MemoryTable
from fedopt.engine.evaluate import is_evaluated
from fedopt.engine.initial_model import build_module
from fedopt.engine.loop import Position, Step
from fedopt.engine.problem import Problem
from fedopt.engine.running_statistics import running_statistics
from fedopt.errors import DiskError
from fedopt.files import Log
from fedopt.models.flat import Flat
from fedopt.runs.directory import RunDirectory
from fedopt.runs.early_stopping import has_stopped_improving, lower_is_better
from fedopt.runs.loggers import RunLogger
from fedopt.runs.metrics_log import MetricsLine, MetricsLog, metrics_lines
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.records import flatten, mean_over_last_rounds
from fedopt.runs.result import RunResult, vector_sha256
from fedopt.runs.shared_data import SharedData


class RunRecorder:
    """Records one execution of a run, in its directory if it has one.

    Args:
        prepared: the run. Its problem has the frozen parameters and buffers of the run.
        start: the position before the first round. A directory with a checkpoint continues there.
        checkpoint_seconds: least time between two checkpoints that the configuration asks for.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        data: SharedData,
        directory: RunDirectory | None,
        start: Position,
        loggers: Sequence[RunLogger],
        *,
        event_file: bool,
        warn: Log,
        checkpoint_seconds: float = 0.0,
    ) -> None:
        self.config = prepared.config
        self.problem = prepared.problem
        self.directory = directory
        self.position = start
        self.seconds = 0.0
        self.fallback_reason = directory.info.get("fallback_reason", "") if directory else ""
        self._checkpoint_seconds, self._saved_seconds = checkpoint_seconds, 0.0
        self._is_adding = False  # while metrics and position may belong to different rounds
        self._data = data
        self._stops_at_lower = lower_is_better(self.config.stop.metric, self.problem.metric, prepared.better)
        self._saved_round = 0  # of the newest checkpoint
        self.table: ClientMemory = MemoryTable()
        if directory:
            self.table = self._restore(directory, start.state, warn)
        self.metrics = MetricsLog(directory, event_file, loggers, flatten(self.config.document()))

    def _restore(self, directory: RunDirectory, state: State, warn: Log) -> ClientMemory:
        checkpoint, warnings = directory.restore(state)
        for warning in warnings:
            warn(warning)
        if checkpoint:
            self.position, self.seconds = checkpoint.position, checkpoint.seconds
            self._saved_round, self._saved_seconds = self.position.round, self.seconds
        population = len(self._data.federation.train.ids)
        keeps = self.problem.algorithm().keeps
        return directory.client_table(keeps, len(state.x), population, self.position.round)

    @property
    def is_finished(self) -> bool:
        if self.directory is None or not self.directory.done:
            return False
        return self.position.round >= self.config.rounds or self.has_stopped_improving

    @property
    def has_stopped_improving(self) -> bool:
        return has_stopped_improving(
            self._planned_evaluations(self.config.rounds), self.config.stop, self._stops_at_lower
        )

    @property
    def is_stalled(self) -> bool:
        """Whether too many rounds in a row had no client with a finite loss and update."""
        return self.position.stalled >= self.config.patience

    def add(self, step: Step, seconds: float) -> None:
        """Append the metrics of a step, and write a checkpoint if it is due."""
        self._is_adding = True
        self.position, self.seconds = step.position, seconds
        for line in metrics_lines(step, seconds):
            self.metrics.add(line)
        done = step.position.round
        is_due = done % self.config.checkpoint.every == 0
        is_due = is_due and seconds - self._saved_seconds >= self._checkpoint_seconds
        if is_due or done == self.config.rounds:
            self.checkpoint()
        self._is_adding = False

    def checkpoint(self) -> None:
        """Write a checkpoint, unless this round has one or the run is about to be given up."""
        if self.directory and self.position.round > self._saved_round and not self.is_stalled:
            self.directory.commit(self.position, self.seconds)
            self._saved_round, self._saved_seconds = self.position.round, self.seconds

    def pause(self, status: str) -> RunResult:
        """Stop before the last round; a later execution resumes here."""
        self.checkpoint()
        self.record_end(status, f"stopped after round {self.position.round}")
        return self.result(None)

    def finish(self, full_test: dict[str, float | None] | None, message: str) -> RunResult:
        """Record the final result. `message` is the reason if the run ended early."""
        result = self.result(full_test)
        if self.directory:
            self.directory.check_files()
            outcome: dict[str, Any] = {"status": "done"}
            if message:
                outcome |= {
                    "message": message,
                    "rounds": self.config.rounds,
                    "rounds_done": self.position.round,
                }
            summary = {key: value for key, value in result.summary().items() if key != "run"}
            self.directory.update(**summary | outcome)
        return result

    def record_end(self, status: str, message: str) -> None:
        """Write to run.json why an unfinished run ended, with its numbers so far."""
        if self.directory:
            result = self.result(None)
            self.directory.update(
                status=status,
                message=message,
                rounds_done=result.rounds,
                train_loss=result.train_loss,
                value=result.value,
                seconds=result.seconds,
                rejected=result.rejected,
                fallback_reason=result.fallback_reason or None,
            )

    def record_interrupt(self) -> None:
        """Write a checkpoint of the last finished round.

        If a second Ctrl-C has interrupted `add`, no checkpoint is written, and the newest one is earlier.
        """
        if self.directory and self._is_adding:
            self.directory.update(status="interrupted")
        elif self.directory and not self.directory.done:
            with suppress(DiskError):  # the earlier checkpoint remains
                self.checkpoint()
            self.record_end("interrupted", f"interrupted after round {self.position.round}")

    def close(self) -> None:
        self.metrics.close()

    def _planned_evaluations(self, rounds: int) -> list[MetricsLine]:
        """The evaluations of a run of `rounds` rounds. An extended run has others, which do not count."""
        every, last_every = self.config.eval.every, self.config.eval.last_every
        return [line for line in self.metrics.test if is_evaluated(line["round"], rounds, every, last_every)]

    def result(self, full_test: dict[str, float | None] | None) -> RunResult:
        """Return the result at the current position."""
        config, x, rounds = self.config, self.position.state.x.clone(), self.position.round
        metric = self.problem.metric
        return RunResult(
            task=config.task,
            algorithm=config.algorithm,
            rounds=rounds,
            seed=config.seed,
            train_loss=mean_over_last_rounds(self.metrics.train, "loss", rounds),
            metric=metric,
            value=mean_over_last_rounds(self._planned_evaluations(rounds), metric, rounds),
            params=len(x),
            x_sha256=vector_sha256(x),
            seconds=round(self.seconds, 3),
            x=x,
            train=self.metrics.train,
            test=self.metrics.test,
            full_test=full_test,
            data=self._data.federation.source,
            path=self.directory.path if self.directory else None,
            problem=self._final_problem(),
            url=self.directory.url if self.directory else None,
            fallback_reason=self.fallback_reason,
        )

    def _final_problem(self) -> Problem:
        """The problem whose fixed state includes the latest running statistics."""
        statistics = running_statistics(self.position.state)
        if statistics is None:
            return self.problem
        flat = Flat(build_module(self.problem), self.problem.buffers)
        assert flat.statistics is not None
        flat.statistics.write(statistics)
        return replace(self.problem, fixed=flat.fixed())
