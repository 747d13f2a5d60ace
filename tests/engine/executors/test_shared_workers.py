"""`fedopt.workers`: worker processes that several runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import own_clients
import pytest
from own_clients import SETTINGS, make_task, train

import fedopt
from fedopt.engine import executors
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.executors.serial import Serial
from fedopt.errors import ConfigError
from fedopt.runs import small_runs


def linear_task() -> Any:
    return make_task(own_clients.linear)


def test_runs_in_a_block_share_its_workers_and_have_the_results_of_serial_runs() -> None:
    task, pids = linear_task(), []

    def note(step: Any) -> None:
        pids.append(tuple(executors._shared[-1].executor.pids))

    with fedopt.workers(2):
        first = train(task, callback=note)
        second = train(task, algorithm="scaffold", callback=note, executor="processes")
    assert len(set(pids)) == 1 and len(pids[0]) == 2
    assert first.x_sha256 == train(task).x_sha256
    assert second.x_sha256 == train(task, algorithm="scaffold").x_sha256
    for pid in pids[0]:
        assert not Path(f"/proc/{pid}").exists(), "workers end with the block"


def test_block_sets_the_default_executor() -> None:
    with open_executor(ExecutorOptions()) as outside:
        assert isinstance(outside, Serial)
    with fedopt.workers(1):
        with open_executor(ExecutorOptions()) as inside, open_executor(ExecutorOptions("serial")) as serial:
            assert inside is executors._shared[-1].executor and isinstance(serial, Serial)
            with open_executor(ExecutorOptions("processes", 1)) as nested:  # while the workers are in use
                assert nested is not inside
        with pytest.raises(ConfigError) as error, open_executor(ExecutorOptions("processes", 2)):
            pass
        assert error.value.keys == ("workers",)
    with pytest.raises(ConfigError), fedopt.workers(0):
        pass


def test_error_in_a_run_keeps_the_workers_usable() -> None:
    task = linear_task()

    def fail(step: Any) -> None:
        raise ValueError

    with fedopt.workers(1):
        with pytest.raises(fedopt.UserError):
            train(task, callback=fail)
        assert train(task).x_sha256 == train(task, executor="serial").x_sha256


def test_module_found_on_a_path_that_was_added_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module.py").write_text(
        "from torch import nn\n\n\ndef network():\n    return nn.Linear(4, 3)\n"
    )
    with fedopt.workers(1):
        monkeypatch.syspath_prepend(tmp_path)
        import late_module

        task = make_task(late_module.network)
        assert train(task).x_sha256 == train(task, executor="serial").x_sha256


def test_small_run_is_serial_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    task = linear_task()
    result = train(task, executor="processes", progress=True)
    assert "small run" in capfd.readouterr().err
    assert result.x_sha256 == train(task).x_sha256


def test_comparison_says_once_that_its_runs_are_small(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    algorithms = ["fedavg", "fedadam"]
    fedopt.compare(
        linear_task(), algorithms, config=SETTINGS, executor="processes", out=tmp_path, progress=True
    )
    assert capfd.readouterr().err.count("small run") == 1


def test_larger_run_uses_processes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedopt.runs.execute.SMALL_RUN_SECONDS", 0.0)
    task = linear_task()
    result = train(task, executor="processes", workers=1, progress=True)
    assert "small run" not in capfd.readouterr().err
    assert result.x_sha256 == train(task).x_sha256


def test_estimate_of_the_training_time() -> None:
    """Clients with 12 examples in batches of 5: 3 steps, and 12 x 6 x 15 x 5 operations."""
    task = linear_task()
    local = fedopt.RunRequest(task, settings=SETTINGS).prepare().problem.local
    federation = fedopt.RunRequest(task, settings=SETTINGS).prepare().problem.federation()
    seconds = small_runs.training_seconds(100, 3, local, federation, parameters=15, numbers=5)
    assert seconds == pytest.approx(100 * 3 * (3 * 0.5e-3 + 12 * 6 * 15 * 5 / 20e9))


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_number_of_workers_must_be_a_positive_integer(count: object) -> None:
    with pytest.raises(ConfigError) as error, fedopt.workers(count):
        pass
    assert error.value.keys == ("workers",)
