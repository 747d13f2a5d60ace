"""Clients are summed in blocks of eight in cohort order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedopt.algorithms import Round
from fedopt.engine.aggregate import BLOCK, BlockedMean
from fedopt.engine.executors.blocks import train_by_client
from fedopt.engine.executors.serial import Serial
from fedopt.engine.torch_state import generator_states, seeded
from fedopt.engine.worker import ClientJob, ClientReport

ROUND = Round(0, 0.1, 1.0, 20, 100)


class RecordedClients(Serial):
    """Returns recorded results of clients."""

    def __init__(self, results: list[tuple[ClientReport, tuple[torch.Tensor, ...]]]) -> None:
        self._results = results

    def map(self, jobs: Any, sent: Any, kept: Any = None) -> Any:
        return (self._results[job.client] for job in jobs)


def report(client: int, *, steps: int = 1, finite: bool = True) -> ClientReport:
    return ClientReport(client, 4.0, steps, 4 * steps, 1.0, finite)


def train(results: list[tuple[ClientReport, tuple[torch.Tensor, ...]]]) -> list[Any]:
    jobs = [ClientJob(ROUND, client) for client in range(len(results))]
    return list(train_by_client(RecordedClients(results), jobs, (), lambda client: None, returned=1))


def mean(blocks: list[Any]) -> BlockedMean:
    total = BlockedMean()
    for block in blocks:
        total.add_block(block.total)
    return total


def summed_by_hand(weight: float, blocks: list[list[torch.Tensor]]) -> torch.Tensor:
    """Sum each block in order, then add the blocks in order."""
    total = None
    for block in blocks:
        part = weight * block[0]
        for v in block[1:]:
            part = part + weight * v
        total = part if total is None else total + part
    return total


def test_clients_are_added_in_blocks_of_eight_and_the_blocks_in_order():
    assert BLOCK == 8
    vectors = list(torch.rand(21, 50, generator=torch.Generator().manual_seed(0)) * 1000)
    actual = mean(train([(report(i), (v,)) for i, v in enumerate(vectors)])).value()[0]
    expected = summed_by_hand(4.0, [vectors[:8], vectors[8:16], vectors[16:]]) / 84
    assert torch.equal(actual, expected)
    assert not torch.equal(summed_by_hand(4.0, [vectors]) / 84, expected), "the order matters"


@pytest.mark.parametrize("out", [0, 3, 7, 8, 15, 19])
@pytest.mark.parametrize("excluded", [{"steps": 0}, {"finite": False}], ids=["no batch", "not finite"])
def test_excluded_client_keeps_its_position_in_the_block(out: int, excluded: dict[str, Any]):
    vectors = list(torch.rand(20, 50, generator=torch.Generator().manual_seed(1)) * 1000)
    results = [(report(i, **(excluded if i == out else {})), (v,)) for i, v in enumerate(vectors)]
    actual = mean(train(results))
    blocks = [[vectors[i] for i in range(a, min(a + 8, 20)) if i != out] for a in (0, 8, 16)]
    assert torch.equal(actual.value()[0], summed_by_hand(4.0, blocks) / 76)
    assert (actual.weight, actual.count) == (76, 19)


def test_kept_vectors_are_copies_and_excluded_clients_keep_nothing():
    own = torch.ones(3)
    results = [
        (report(0), (torch.zeros(3), own)),
        (report(1, finite=False), (torch.full((3,), torch.inf), own)),
        (report(2, steps=0), ()),
    ]
    (block,) = train(results)
    own.fill_(5.0)
    assert list(block.kept) == [0] and torch.equal(block.kept[0][0], torch.ones(3))
    assert [r.client for r in block.reports] == [0, 1, 2]


class DrawingClients(RecordedClients):
    def map(self, jobs: Any, sent: Any, kept: Any = None) -> Any:
        for job in jobs:
            with seeded("client"):
                result = self._results[job.client]
            yield result


def test_generators_are_those_of_the_user_between_blocks():
    """An interrupt between two blocks may keep the rest of the round alive."""
    before = generator_states()
    clients = DrawingClients([(report(i), (torch.zeros(2),)) for i in range(9)])
    blocks = train_by_client(
        clients, [ClientJob(ROUND, i) for i in range(9)], (), lambda client: None, returned=1
    )
    next(blocks)
    assert generator_states() == before
    assert len(list(blocks)) == 1
