"""A step is traced in one fake mode, which changes the time of a trace and not its graph."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from fedopt.engine.stacked import model as stacked
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


@pytest.mark.parametrize("eta_l", [None, torch.tensor(0.1)], ids=["gradient", "step of SGD"])
def test_graph_does_not_depend_on_the_fake_mode(
    eta_l: torch.Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS["synthetic_mlp"]
    problem = build_problem(task, resolve(task, "fedavg", {"data.clients": 3}))
    model = stacked.StackedModel(problem, "cpu", separate_updates=True)
    client = problem.federation().train.client(0)
    inputs, targets = (torch.tensor(column[:4]) for column in client)
    batch = stacked.StackedBatch(inputs.repeat(2, 1, 1), targets.repeat(2, 1), torch.tensor([4.0, 3.0]))
    x = torch.ones(2, model.flat.d)
    rates = None if eta_l is None else eta_l.repeat(2, 1)
    in_one_mode = model.trace(x, batch, rates).code
    monkeypatch.setattr(stacked, "_one_fake_mode", nullcontext)
    assert model.trace(x, batch, rates).code == in_one_mode
