"""The work of a slot, in this process."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
import small
import torch

from fedopt.algorithms.base import Round
from fedopt.engine.executors.base import Executor
from fedopt.engine.executors.ray.slot import Slot, to_arrays
from fedopt.engine.executors.serial import Serial
from fedopt.engine.executors.vectorised import Vectorised
from fedopt.engine.initial_model import initial_vector
from fedopt.engine.worker import ClientJob
from fedopt.errors import UserError

JOBS = [ClientJob(Round(0, 0.1, 1.0, 8, 24), client) for client in range(8)]


@pytest.mark.parametrize(("device", "expected"), [(None, Serial()), ("cpu", Vectorised("cpu"))])
def test_block_of_a_slot_survives_the_journey_to_the_driver(device: str | None, expected: Executor) -> None:
    """The sum, its weight and the kept vectors are those of the executor in the slot, to the bit."""
    problem = small.problem(algorithm="scaffold")
    federation = problem.federation()
    x = initial_vector(problem)
    sent = (x, torch.full_like(x, 0.01))
    slot = Slot(os.getcwd(), [], device)
    slot._executor.load(problem, federation, ())
    expected.load(problem, federation, ())
    [block] = expected.train(JOBS, sent)
    answer: Any = slot.train_block(JOBS, {}, 1, *to_arrays(sent))
    [received] = pickle.loads(pickle.dumps(answer))
    assert (received.total.weight, received.total.count) == (block.total.weight, 8)
    assert all(map(torch.equal, received.total.vectors(), block.total.vectors()))
    assert [report.client for report in received.reports] == list(range(8))
    for client, vectors in block.kept.items():
        assert all(
            torch.equal(torch.tensor(a), v) for a, v in zip(received.kept[client], vectors, strict=True)
        )


def test_device_that_the_node_lacks_is_rejected() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError):
        Slot(os.getcwd(), [], "cuda")
