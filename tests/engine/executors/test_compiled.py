"""The executor `compiled`: results, the C++ compiler and its cache, and the choice by `auto`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import small
import torch
from torch import nn
from training import assert_same_cohort, train_cohort
from typed import fedopt as command

import fedopt
from fedopt.engine.executors import ExecutorOptions, open_executor
from fedopt.engine.executors.choice import MAX_OPERATIONS, choose_executor
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.errors import ConfigError, MissingProgram
from fedopt.runs.build_problem import build_problem
from fedopt.runs.prepare import RunRequest, with_chosen_executor
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

# The step of this run is also compiled by a test of stacked sweeps.
QUICK = ("--set", "clients_per_round=4", "--set", "client.steps=3", "--set", "client.batch_size=5")


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_compiled_clients_equal_serial(algorithm: str) -> None:
    """Blocks of 3, 3 and 1 clients with 1 to 5 steps and short batches: one compiled step serves them all."""
    executor = Vectorised(compiles=True, floats=12_000)
    problem = small.problem({"client.batch_size": 8}, algorithm)
    expected, actual = (train_cohort(one, problem, range(7), 0.1) for one in (Serial(), executor))
    assert executor.fallback_reason == ""
    assert len({report.steps for report in actual.reports}) > 2
    assert_same_cohort(expected, actual, 1e-5)
    assert len(executor._worker._steps._built) == 1


class _Exponential(nn.Module):
    """Compiled code calls the matrix exponential through torch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(small.FEATURES, 4), nn.Linear(4, small.CLASSES)
        self.matrix = nn.Parameter(torch.eye(4) / 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(inputs) @ torch.linalg.matrix_exp(self.matrix))


class _Imaginary(nn.Module):
    """TorchInductor does not compile products with complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(small.FEATURES, small.CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        return (torch.complex(outputs, outputs) * 1j).real


@pytest.mark.parametrize("model", [_Exponential, _Imaginary])
def test_unusual_operations_train_as_on_serial(model: type[nn.Module]) -> None:
    """The second model is trained one client after the other, on every machine."""
    executor = Vectorised(compiles=True)
    problem = replace(small.problem({"client.batch_size": 8}), model=model)
    expected, actual = (train_cohort(one, problem, range(4), 0.1) for one in (Serial(), executor))
    assert_same_cohort(expected, actual, 1e-5)
    assert bool(executor.fallback_reason) == (model is _Imaginary)


def test_compiled_run_records_its_executor_and_resumes(tmp_path: Path) -> None:
    words = ("run", "synthetic_lr", "--executor", "compiled", *QUICK, "--json")
    whole = command(*words, "--rounds", "4", "--out", tmp_path / "whole")
    command(*words, "--rounds", "2", "--out", tmp_path / "run")
    resumed = command("resume", tmp_path / "run", "--json")
    extended = command(*words, "--rounds", "4", "--out", tmp_path / "run")
    assert whole.code == resumed.code == extended.code == 0, whole.err
    assert json.loads(whole.out)["x_sha256"] == json.loads(extended.out)["x_sha256"]
    assert 'vectorised = "compiled"' in (tmp_path / "run" / "config.toml").read_text()
    refused = command("run", "synthetic_lr", *QUICK, "--rounds", "4", "--out", tmp_path / "run")
    assert refused.code == 2 and "vectorised" in refused.err


def test_missing_compiler_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        sys.executable,
        "-m",
        "fedopt",
        "run",
        "synthetic_mlp",
        "--executor",
        "compiled",
        "--out",
        str(out),
    ]
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("CXX", None)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not out.exists()
    message = done.stderr.strip().splitlines()[-1]
    assert "g++" in message and "--executor vectorised" in message and "Traceback" not in done.stderr


def test_missing_compiler_names_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingProgram) as caught:
        Vectorised(compiles=True)
    assert caught.value.program == "no-such-compiler"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])  # processes compile
def test_failing_compiler_ends_the_run(tmp_path: Path, workers: int) -> None:
    """Training without the compiler would give another result on this machine than on others."""
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    words = ["run", "synthetic_lr", "--executor", "compiled", "--workers", str(workers), "--rounds", "1"]
    settings = ["--set", "data.clients=40", "--set", "clients_per_round=40", "--set", "client.steps=1"]
    environment = {**os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-m", "fedopt", *words, *settings, "--out", str(tmp_path / "run")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    failure = next(line for line in done.stderr.splitlines() if line.startswith("failed:"))
    assert "--executor vectorised" in failure and "Traceback" not in done.stderr


@pytest.mark.slow  # compiles twice without a cache
@pytest.mark.skipif("CXX" in os.environ, reason="another compiler than g++ is used")
def test_second_process_does_not_call_the_compiler(tmp_path: Path) -> None:
    calls, compiler = tmp_path / "calls", tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "fedopt", "run", "synthetic_mlp", "--executor", "compiled", *QUICK]
    checksums = []
    for number in range(2):
        calls.write_text("")
        options = ["--rounds", "1", "--json", "--out", str(tmp_path / str(number))]
        done = subprocess.run(words + options, env=environment, capture_output=True, text=True, check=True)
        checksums.append(json.loads(done.stdout)["x_sha256"])
    assert [line for line in calls.read_text().splitlines() if ".cpp" in line] == []
    assert checksums[0] == checksums[1]


def test_compiled_on_another_device_is_rejected() -> None:
    with pytest.raises(ConfigError) as caught:
        fedopt.run("synthetic_mlp", executor="compiled", device="cuda")
    assert set(caught.value.keys) == {"device", "executor"}


@pytest.mark.parametrize(
    ("task", "algorithm", "executor"),
    [
        ("synthetic_mlp", "fedavg", "compiled"),
        ("synthetic_lr", "scaffold", "compiled"),
        ("emnist_cr", "fedavg", "processes"),
        ("so_lr", "fedavg", "processes"),
        ("synthetic_mlp", "centralized", "processes"),
    ],
)
def test_auto_chooses_by_the_problem(task: str, algorithm: str, executor: str) -> None:
    problem = build_problem(TASKS[task], resolve(TASKS[task], algorithm, {}))
    name, reason = choose_executor(problem)
    assert name == executor
    assert reason and "\n" not in reason


def test_operations_of_a_step_are_those_of_its_products() -> None:
    """The MLP 60-32-10 has 60 * 32 + 32 * 10 weights, each with one multiplication and addition."""
    problem = build_problem(TASKS["synthetic_mlp"], resolve(TASKS["synthetic_mlp"], "fedavg", {}))
    executor = Vectorised()
    executor.load(problem, problem.federation(), ())
    assert executor._worker.plan.flops == 2 * (60 * 32 + 32 * 10)
    assert 3 * executor._worker.plan.flops * 10 < MAX_OPERATIONS


def test_auto_is_replaced_by_its_choice() -> None:
    requests = [
        RunRequest("synthetic_mlp", name, executor=ExecutorOptions("auto")) for name in ("fedavg", "fedadam")
    ]
    chosen, line = with_chosen_executor(requests)
    assert [request.executor.name for request in chosen] == ["compiled", "compiled"]
    assert line.startswith("executor compiled: ")
    assert "--executor compiled" in chosen[0].command(Path("out"))
    requests.append(RunRequest("synthetic_mlp", "centralized", executor=ExecutorOptions("auto")))
    assert {request.executor.name for request in with_chosen_executor(requests)[0]} == {"processes"}


def test_auto_prints_its_choice(tmp_path: Path) -> None:
    done = command(
        "run", "synthetic_lr", "--executor", "auto", *QUICK, "--rounds", "1", "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    assert "executor compiled: a step of a client has" in done.err


def test_workers_of_vectorised_are_one_by_default() -> None:
    with open_executor(ExecutorOptions("vectorised")) as executor:
        assert isinstance(executor, Vectorised) and executor._workers == 1
    with open_executor(ExecutorOptions("compiled", 3)) as executor:
        assert isinstance(executor, Vectorised) and executor._workers == 3
