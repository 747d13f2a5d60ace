"""Ctrl-C, SIGTERM and SIGHUP: a checkpoint of the last finished round, the status, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import small
from own_clients import make_task, train
from sweeps import group_pids, recorded_rounds, started, sweep_words, wait_for
from typed import small_command, temporary_files
from written import read_info, read_lines

import fedopt
from fedopt.engine import loop
from fedopt.engine.executors.processes import Processes
from fedopt.runs.interrupts import SIGNALS, SignalHandler, deferred_interrupts

RARE_CHECKPOINTS = {"checkpoint.every": 100}


def test_deferred_interrupt_arrives_after_the_block() -> None:
    finished = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        finished = True
    assert finished
    with pytest.raises(KeyboardInterrupt):  # the handler is restored
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


@pytest.fixture
def _hangup_not_ignored() -> Iterator[None]:
    """The default action for SIGHUP. It is ignored if the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_hangup_not_ignored")
def test_handlers_are_restored_after_several_signals() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with SignalHandler() as handler:
        with pytest.raises(KeyboardInterrupt), deferred_interrupts():
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
                os.kill(os.getpid(), number)
                time.sleep(0.01)
        assert all(signal.getsignal(number) == handler._handle for number in SIGNALS)
        assert handler.received == signal.SIGHUP
    assert [signal.getsignal(number) for number in SIGNALS] == before


def interrupt_evaluation(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Raise KeyboardInterrupt in the evaluation of this number, counted from 0."""
    evaluate, calls = loop.evaluate_sample, []

    def evaluate_sample(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number + 1:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(loop, "evaluate_sample", evaluate_sample)


SPARSE = {
    "data.clients": 12,
    "clients_per_round": 3,
    "client.batch_size": 8,
    "model.vocabulary": 100,
    "eval.sample": 60,
    "eval.every": 1,
}


@pytest.mark.parametrize("algorithm", ["fedavg", "fedyogi", "scaffold"])
def test_interrupted_round_is_undone(algorithm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The evaluation follows the update of the server. With fedavg it has overwritten rows of x."""
    options = {"algorithm": algorithm, "config": SPARSE | RARE_CHECKPOINTS | {"rounds": 5}}
    out = tmp_path / "run"
    with monkeypatch.context() as patches:
        interrupt_evaluation(patches, 3)
        with pytest.raises(KeyboardInterrupt) as error:
            fedopt.run("so_lr", out=out, **options)
    assert type(error.value) is KeyboardInterrupt
    info = read_info(out)
    assert (info["status"], info["rounds_done"]) == ("interrupted", 2)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["000002"]
    rounds: list[int] = []
    resumed = fedopt.run(
        "so_lr", out=out, callback=lambda step: rounds.append(step.position.round), **options
    )
    whole = fedopt.run("so_lr", out=tmp_path / "whole", **options)
    assert rounds == [3, 4, 5]
    assert resumed.x_sha256 == whole.x_sha256
    assert read_lines(out) == read_lines(tmp_path / "whole")
    assert read_info(out)["status"] == "done"


class SendSignals(fedopt.RunLogger):
    """Sends signals to this process while the line of a round is recorded."""

    def __init__(self, round: int, signals: tuple[signal.Signals, ...]) -> None:
        self.round, self.signals = round, signals

    def add(self, line: Mapping[str, Any]) -> None:
        if (line["round"], line["split"]) == (self.round, "train"):
            for number in self.signals:
                os.kill(os.getpid(), number)
                time.sleep(0.01)


@pytest.mark.parametrize(
    ("signals", "saved"),
    [
        ((signal.SIGTERM, signal.SIGTERM), "000003"),  # from a pool with a dead worker
        ((signal.SIGHUP, signal.SIGTERM), "000003"),  # from a terminal that is closed
        ((signal.SIGINT, signal.SIGINT), "000002"),  # a user who does not want to wait
    ],
)
@pytest.mark.parametrize("algorithm", ["fedavg", "fedyogi"])
def test_second_signal_does_not_separate_the_model_from_its_round(
    algorithm: str, signals: tuple[signal.Signals, ...], saved: str, tmp_path: Path
) -> None:
    """With fedavg the round has overwritten rows of x. They belong to the round that is recorded."""
    options = {"algorithm": algorithm, "config": SPARSE | {"rounds": 5, "checkpoint.every": 2}}
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt), SignalHandler():
        fedopt.run("so_lr", out=out, log=[SendSignals(3, signals)], **options)
    assert read_info(out)["status"] == "interrupted"
    assert max(path.name for path in (out / "checkpoints").iterdir()) == saved
    resumed = fedopt.run("so_lr", out=out, **options)
    whole = fedopt.run("so_lr", out=tmp_path / "whole", **options)
    assert resumed.x_sha256 == whole.x_sha256
    assert read_lines(out) == read_lines(tmp_path / "whole")


def test_interrupt_in_a_callback_keeps_its_round(tmp_path: Path) -> None:
    def press(step: Any) -> None:
        if step.position.round == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(make_task(), rounds=4, out=out, callback=press, config=RARE_CHECKPOINTS)
    assert read_info(out)["status"] == "interrupted"
    assert [line["round"] for line in read_lines(out, "train")] == [1, 2]
    resumed = train(make_task(), rounds=4, out=out, config=RARE_CHECKPOINTS)
    assert resumed.x_sha256 == train(make_task(), rounds=4).x_sha256


def test_finished_run_stays_done_when_the_next_start_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    small.run(out=out)
    monkeypatch.setattr("fedopt.runs.open_run.build_plan", lambda *arguments: interrupt())
    with pytest.raises(KeyboardInterrupt):
        small.run(out=out)
    assert read_info(out)["status"] == "done"


def interrupt() -> None:
    raise KeyboardInterrupt


def test_workers_of_an_interrupted_run_end_and_the_executor_is_usable(tmp_path: Path) -> None:
    """A client that hangs does not delay the end."""
    from dataclasses import replace
    from functools import partial
    from threading import Timer

    mark = tmp_path / "mark"
    task = replace(small.SMALL, prepare=partial(small.hung_once, str(mark), 3))
    executor = Processes(1)
    settings = {"clients_per_round": 24, "rounds": 1}
    timer = Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        executor.load(small.problem(), *_data())
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            small.run(executor, settings=settings, task=task, out=tmp_path / "run")
        assert time.monotonic() - began < 30
        again = small.run(executor, settings=settings, task=task, out=tmp_path / "run")
        assert again.x_sha256 == small.run(settings=settings).x_sha256
    finally:
        timer.cancel()
        executor.close()


def _data() -> tuple[Any, Any]:
    data = small.problem().federation()
    return data, data.test.client(0)


# -- the command


def finished_rounds(out: Path) -> int:
    return len(read_lines(out, "train")) if (out / "metrics.jsonl").is_file() else 0


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [("run", signal.SIGINT, 130), ("run", signal.SIGTERM, 143), ("compare", signal.SIGHUP, 129)],
)
def test_signal_ends_the_command_with_a_checkpoint(
    command: str, number: int, code: int, tmp_path: Path
) -> None:
    more = ["--algorithms", "fedavg,fedyogi"] if command == "compare" else ["--executor", "processes"]
    words = small_command(
        command, *more, "--out", tmp_path / "out", "--rounds", "1000", eval__every=1000, checkpoint__every=500
    )
    out = tmp_path / "out" / "fedavg" if command == "compare" else tmp_path / "out"
    with started([str(word) for word in words]) as process:
        wait_for(lambda: finished_rounds(out) >= 2)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        wait_for(lambda: not group_pids(process), seconds=20)
    assert process.returncode == code, stderr
    assert stderr.splitlines()[-1].startswith(f"interrupted; to resume: fedopt {command} emnist_cr")
    assert "Traceback" not in stderr
    done = len(read_lines(out, "train"))
    info = read_info(out)
    assert (info["status"], info["rounds_done"]) == ("interrupted", done)
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"{done:06d}"]
    assert temporary_files(out) == []


def test_second_interrupt_ends_the_command_at_once(tmp_path: Path) -> None:
    script = (
        "import time\n"
        "from fedopt.cli import main\n"
        "from fedopt.runs.directory import RunDirectory\n"
        "def commit(*arguments):\n"
        "    print('saving', flush=True)\n"
        "    time.sleep(60)\n"
        "RunDirectory.commit = commit\n"
        "main()\n"
    )
    words = small_command("run", "--out", tmp_path / "run", "--rounds", "1000", checkpoint__every=500)
    command = [sys.executable, "-c", script, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        wait_for(lambda: finished_rounds(tmp_path / "run") > 0)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "saving\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_interrupted_sweep_ends_promptly_with_checkpoints_of_its_trials(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = sweep_words(
        "--out", out, "--workers", "1", grid="client_lr=1|2", rounds=5000, checkpoint__every=5000
    )
    with started(words) as process:
        wait_for(lambda: recorded_rounds(out) > 2)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, stderr = process.communicate(timeout=60)
        wait_for(lambda: not group_pids(process), seconds=20)
    assert process.returncode == 143 and time.monotonic() - began < 20
    line = stderr.splitlines()[-1]
    assert line.startswith("interrupted; to resume: fedopt sweep so_lr")
    (trial,) = (out / "trials").iterdir()
    done = len(read_lines(trial, "train"))
    assert (read_info(trial)["status"], read_info(trial)["rounds_done"]) == ("interrupted", done)
    assert [path.name for path in (trial / "checkpoints").iterdir()] == [f"{done:06d}"]
