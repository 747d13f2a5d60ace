"""What `soak.py` checks with damaged directories and unusual models: an equal result, or one line.

A contract prepares a directory, damages it, and runs a command. The command must give the result of its
reference, or end with exit code 1 or 2 and one line. It must never give another result.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from soak_cases import Result, command, import_table, run_result, train
from soak_faults import flip_bit
from torch import Tensor, nn

import fedopt
from fedopt.errors import RunError


def _nothing(out: Path, *ignored: object) -> str:
    return "nothing"


@dataclass(frozen=True)
class Contract:
    """A command, and a reference with the same result. Each function with a path has its own process."""

    name: str
    fault: str  # its name in the counts
    run: Callable[[Path], None]
    result: Callable[[Path], Result]
    prepare: Callable[[Path], Any] = _nothing
    disturb: Callable[[Path, random.Random], str] = _nothing  # returns what was done
    reference: Callable[[Path], None] | None = None  # in an empty directory; None: `run` without `disturb`
    repeats: int = 1


# -- results of Python calls


def _call(out: Path, *runs: Callable[[], fedopt.RunResult | fedopt.RunGroup]) -> None:
    """Make the calls and write the last result. Errors end the process as on the command line."""
    try:
        result = [run() for run in runs][-1]
    except fedopt.FedoptError as error:
        sys.stderr.write(f"failed: {error}\n")
        raise SystemExit(1) from error
    group = [result] if isinstance(result, fedopt.RunResult) else result.results
    numbers = {run.algorithm: [run.x_sha256, run.last, [line["loss"] for line in run.train]] for run in group}
    (out / "result.json").write_text(json.dumps(numbers))


def _returned(out: Path) -> Result:
    numbers: Result = json.loads((out / "result.json").read_text())
    return numbers


# -- one flipped bit


def _report(out: Path) -> None:
    command("report", out / "run", "--output", out / "page.html")


def _page(out: Path) -> Result:
    return {"page": (out / "page.html").read_text()}


def _train_on_store(out: Path) -> None:
    def run() -> fedopt.RunResult:
        task = fedopt.own_task(partial(nn.Linear, 2, 3), F.cross_entropy, str(out / "store"))
        return fedopt.run(task, rounds=3, config={"client.lr": 1e-6, "client.steps": 5})

    _call(out, run)


def _verify(out: Path) -> None:
    command("data", "info", out / "store", "--verify")


def _bytes(out: Path) -> Result:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def _flips(name: str, **parts: Any) -> Contract:
    options: dict[str, Any] = {"disturb": flip_bit, "repeats": 5, **parts}
    return Contract(name=f"flip, {name}", fault="flipped bit", **options)


FLIPS = [
    _flips("data", run=_train_on_store, result=_returned, prepare=import_table),
    _flips(
        "verify",
        run=_verify,
        result=_bytes,  # so a flip that is not found is a difference
        prepare=import_table,
        disturb=partial(flip_bit, keep_times=True),
    ),
]
for _algorithm in ("fedyogi", "scaffold"):
    _begin, _extend = (train(_algorithm, every=4, rounds=rounds) for rounds in (15, 30))
    FLIPS += [
        _flips(f"resume {_algorithm}", run=_extend, result=run_result, prepare=_begin),
        _flips(f"report {_algorithm}", run=_report, result=_page, prepare=_begin),
    ]


# -- two models with different weights in one directory


def _linear(seed: int) -> nn.Module:
    """A network whose weights depend on nothing else, like a pretrained one."""
    generator, model = torch.Generator().manual_seed(seed), nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(torch.randn(3, 4, generator=generator))
    return model


def _task(model: Any, **options: Any) -> Any:
    rng = np.random.default_rng(0)
    clients = {
        f"c{i}": (rng.uniform(0, 9, (12, 4)).astype(np.float32), rng.integers(0, 3, 12)) for i in range(4)
    }
    return fedopt.own_task(model, F.cross_entropy, clients, clients["c0"], **options)


CONFIG = {"clients_per_round": 3, "client.lr": 0.01, "client.batch_size": 4, "eval.every": 2}


def _train_linear(out: Path, seed: int, form: str, rounds: int) -> None:
    model = _linear(seed) if form == "module" else partial(_linear, seed)
    _call(out, lambda: fedopt.run(_task(model), rounds=rounds, config=CONFIG, out=out / "run"))


def _compare_linear(out: Path, seed: int) -> None:
    os.chdir(out)  # the default directory
    task = _task(_linear(seed))

    def compare() -> fedopt.RunGroup:
        group = fedopt.compare(task, ["fedavg", "fedyogi"], rounds=3, config=CONFIG, progress=False)
        for failure in group.failures:
            raise RunError(failure)
        return group

    _call(out, compare)


def _two_models(name: str, first: Callable[[Path], None], second: Callable[[Path], None]) -> Contract:
    return Contract(f"two models, {name}", "second model", second, _returned, first, reference=second)


TWO_MODELS = [
    _two_models(
        f"{form}, {rounds} rounds",
        partial(_train_linear, seed=1, form=form, rounds=3),
        partial(_train_linear, seed=2, form=form, rounds=rounds),
    )
    for form in ("module", "factory")
    for rounds in (3, 5)
]
TWO_MODELS.append(_two_models("compare", partial(_compare_linear, seed=1), partial(_compare_linear, seed=2)))


# -- models with hidden state, and models that change their parameters


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.linear(x)
        return outputs


class Attribute(Net):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (1 + self.calls / 100)


class Average(Net):
    mean: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return super().forward(x - self.mean)


class FirstBatch(Net):
    mean: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return super().forward(x - self.mean)


class GlobalCount(Net):
    calls: list[int] = []  # of all objects  # noqa: RUF012

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(1)
        return super().forward(x) * (1 + len(self.calls) / 100)


class BufferData(Net):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.data += 1
        return super().forward(x) * (1 + self.count / 100)


class NumpyNoise(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + float(np.random.normal()))  # noqa: NPY002


class PythonNoise(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + random.random())


class DropoutInEvaluation(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, training=True))


class Clamped(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.linear.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class ClampedData(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.data.clamp_(-0.1, 0.1)
        return super().forward(x)


class ReplacedParameter(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight = nn.Parameter(self.linear.weight.detach() * 0.99)
        return super().forward(x)


class MaxNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3, max_norm=0.5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.table(x[:, 0].long())
        return outputs


STATEFUL = (Attribute, Average, FirstBatch, GlobalCount, BufferData)
RANDOM = (NumpyNoise, PythonNoise, DropoutInEvaluation)
MODELS = (*STATEFUL, *RANDOM, Clamped, ClampedData, ReplacedParameter, MaxNorm)


def _train_model(out: Path, model: type[nn.Module], rounds: int = 6, **options: Any) -> fedopt.RunResult:
    config = CONFIG | options.pop("config", {})
    return fedopt.run(_task(model), rounds=rounds, config=config, out=out / "run", **options)


def _alone(out: Path, model: type[nn.Module], **options: Any) -> None:
    _call(out, partial(_train_model, out, model, **options))


def _resumed(out: Path, model: type[nn.Module], **options: Any) -> None:
    _call(out, *(partial(_train_model, out, model, rounds, **options) for rounds in (2, 3, 6)))


def _on_workers(out: Path, model: type[nn.Module]) -> None:
    with fedopt.workers(2):
        _call(out, partial(_train_model, out, model))


def _hidden(model: type[nn.Module], how: str, run: Any, **options: Any) -> Contract:
    reference = partial(_alone, model=model, **options)
    name = f"hidden state, {model.__name__} {how}"
    return Contract(name, "unusual model", run, _returned, reference=reference)


HIDDEN = [
    contract
    for model in MODELS
    for contract in (
        _hidden(model, "resumed", partial(_resumed, model=model)),
        _hidden(model, "on workers", partial(_on_workers, model=model)),
        _hidden(model, "evaluated more often", partial(_alone, model=model, config={"eval.every": 1})),
        _hidden(
            model,
            "vectorised and resumed",
            partial(_resumed, model=model, executor="vectorised"),
            executor="vectorised",
        ),
    )
]

FAMILIES = (FLIPS, TWO_MODELS, HIDDEN)
