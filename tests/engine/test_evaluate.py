"""Evaluation on samples and clients."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import small
import torch
import torch.nn.functional as F
from splits import from_arrays
from torch import nn

from fedopt.engine.evaluate import evaluate_sample, fixed_sample, is_evaluated, sample_size
from fedopt.engine.executors.serial import Serial
from fedopt.engine.initial_model import initial_vector


def test_evaluated_rounds():
    """Round 0, the last, every 100th, and of the last hundred (151 to 250) every 25th from the end."""
    assert [r for r in range(251) if is_evaluated(r, 250, 100, 25)] == [0, 100, 175, 200, 225, 250]
    assert [r for r in range(8) if is_evaluated(r, 7, 3, 100)] == [0, 3, 6, 7]
    assert [r for r in range(4) if is_evaluated(r, 3, 1, 1)] == [0, 1, 2, 3]
    result = small.run(settings={"rounds": 7, "eval.every": 3, "eval.last_every": 2})
    assert [line["round"] for line in result.test] == [0, 1, 3, 5, 6, 7]


def test_loss_and_metric_worked_by_hand():
    """A linear model of the first two inputs classifies three of four examples correctly."""
    inputs = np.zeros((4, 8), np.float32)
    inputs[:, :2] = [[2, 0], [0, 3], [1, 0], [0, 1]]
    labels = np.array([0, 1, 0, 0])
    module = nn.Linear(8, 2, bias=False)
    module.weight.data = torch.eye(2, 8)
    split = from_arrays({"t": (inputs, labels, np.zeros(4))})
    problem = replace(small.problem(), model=lambda: module)
    executor = Serial()
    executor.load(problem, problem.federation(), fixed_sample(split, sample_size(split, 0)))
    evaluation = evaluate_sample(executor, torch.eye(2, 8).reshape(-1), 4)
    losses = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(-3)), math.log(1 + math.exp(-1)), 0]
    losses[3] = math.log(1 + math.exp(1))
    assert evaluation == {"loss": pytest.approx(sum(losses) / 4, rel=1e-6), "accuracy": 0.75}


def test_evaluation_over_several_shards_without_dropout():
    inputs, labels, owners = small.cloud("test", 1203, 5)
    problem = small.problem()
    executor, x = Serial(), initial_vector(problem)
    executor.load(problem, problem.federation(), (inputs, labels, owners))
    module = small.network().double().eval()
    nn.utils.vector_to_parameters(x.double(), module.parameters())
    outputs = module(torch.from_numpy(inputs).double())
    loss = F.cross_entropy(outputs, torch.from_numpy(labels)).item()
    hits = (outputs.argmax(1).numpy() == labels).mean()
    assert evaluate_sample(executor, x, 1203) == pytest.approx({"loss": loss, "accuracy": hits}, rel=1e-6)


def test_evaluation_sample_is_fixed():
    split = from_arrays({str(i): (np.arange(10 * i, 10 * i + 10), np.zeros(10)) for i in range(10)})
    (first, _), (again, _) = fixed_sample(split, 30), fixed_sample(split, 30)
    assert len(set(first)) == 30 and set(first) < set(range(100))
    assert (first == again).all()
    assert (fixed_sample(split, sample_size(split, 0))[0] == np.arange(100)).all()
    assert (sample_size(split, 30), sample_size(split, 0), sample_size(split, 1000)) == (30, 100, 100)


def test_runs_with_different_seeds_use_the_same_sample():
    """A model of zeros predicts class 0, so its accuracy in round 0 is the share of that class."""
    task = replace(small.SMALL, model=small.undecided)
    at_zero = [small.run(settings={"seed": s, "eval.sample": 17}, task=task).test[0] for s in (1, 2, 3)]
    assert len({line["accuracy"] for line in at_zero}) == 1
    assert at_zero[0]["loss"] == pytest.approx(math.log(4), rel=1e-6)
    hits = at_zero[0]["accuracy"] * 17
    assert hits == pytest.approx(round(hits), abs=1e-9)


def test_metric_of_outputs_that_are_not_numbers_is_undefined():
    """The largest of NaN scores is the first, so class 0 would be a correct prediction."""
    problem = replace(small.problem(), model=lambda: nn.Linear(8, 2, bias=False))
    executor = Serial()
    for rows in ([0, 1, 2, 3], [2]):
        inputs = np.ones((4, 8), np.float32)
        inputs[rows] = np.nan
        executor.load(problem, problem.federation(), (inputs, np.zeros(4, np.int64), np.zeros(4)))
        evaluation = evaluate_sample(executor, torch.eye(2, 8).reshape(-1), 4)
        assert math.isnan(evaluation["loss"]) and math.isnan(evaluation["accuracy"])


def test_metric_with_an_infinite_loss_is_defined():
    """A score of minus infinity excludes a class. The loss of its examples is infinite."""
    module = nn.Linear(8, 2)
    problem = replace(small.problem(), model=lambda: module)
    executor = Serial()
    executor.load(
        problem, problem.federation(), (np.ones((4, 8), np.float32), np.array([0, 0, 0, 1]), np.zeros(4))
    )
    x = torch.tensor([0.0] * 17 + [-math.inf])
    evaluation = evaluate_sample(executor, x, 4)
    assert evaluation == {"loss": math.inf, "accuracy": 0.75}
