"""Training on a real Ray cluster of several nodes gives the bits of the serial executor."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import small
import torch

from fedopt.engine.executors.ray.executor import RayExecutor
from fedopt.errors import ConfigError, DataError, ModelError, WorkerError
from fedopt.tasks import TASKS

pytestmark = pytest.mark.xdist_group("ray")  # one process of the test session starts the cluster


@pytest.mark.parametrize("clients", [6, 24])
@pytest.mark.parametrize("case", ["fedavg", "fedyogi", "scaffold", "lookahead average", "as run"])
def test_cluster_equals_serial_to_the_bit(case: str, clients: int, on_ray: RayExecutor) -> None:
    """Six clients are trained one by one, and the first of 24 clients in whole blocks."""
    algorithm, settings = small.CASES[case]
    settings = settings | {"clients_per_round": clients}
    serial = small.run(None, algorithm, settings)
    result = small.run(on_ray, algorithm, settings)
    assert not torch.equal(serial.x, small.setup(None, algorithm, settings)[1])
    assert result.x_sha256 == serial.x_sha256
    assert [line["loss"] for line in result.train] == [line["loss"] for line in serial.train]
    assert [line["accuracy"] for line in result.test] == [line["accuracy"] for line in serial.test]


@pytest.mark.parametrize("name", ["emnist_cr", "so_lr"])
def test_paper_task_on_the_cluster_equals_serial_to_the_bit(name: str, on_ray: RayExecutor) -> None:
    """The updates of so_lr have sparse rows; 24 clients make whole blocks of them."""
    settings = {
        "data.clients": 40,
        "clients_per_round": 24 if name == "so_lr" else 4,
        "client.steps": 1,
        "rounds": 2,
        "eval.sample": 100,
    }
    task = TASKS[name]
    serial = small.run(None, "fedavg", settings, task)
    assert small.run(on_ray, "fedavg", settings, task).x_sha256 == serial.x_sha256


def test_slots_use_one_thread(on_ray: RayExecutor) -> None:
    small.run(on_ray, task=replace(small.SMALL, prepare=small.one_threaded))


def test_task_of_the_main_program_is_sent_by_value(on_ray: RayExecutor) -> None:
    task = replace(small.SMALL, loss=lambda outputs, targets: small.cross_entropy(outputs, targets))
    assert small.run(on_ray, task=task).x_sha256 == small.run().x_sha256


def test_exception_in_the_loss_becomes_worker_error_with_client_and_round(on_ray: RayExecutor) -> None:
    task = replace(small.SMALL, prepare=partial(small.marked, 13), loss=small.picky)
    with pytest.raises(WorkerError) as caught:
        small.run(on_ray, settings={"clients_per_round": 24}, task=task)
    assert (caught.value.client, caught.value.round) == ("c13", 1)
    assert "ValueError" in str(caught.value) and "\n" not in str(caught.value)
    assert small.run(on_ray).x_sha256 == small.run().x_sha256


def test_user_error_on_a_node_keeps_its_type(on_ray: RayExecutor) -> None:
    task = replace(small.SMALL, federation=small.with_an_empty_client)
    with pytest.raises(DataError) as caught:
        small.run(on_ray, settings={"clients_per_round": 24}, task=task)
    assert caught.value.client == "c05"


def test_problem_that_cannot_be_pickled_is_rejected(on_ray: RayExecutor) -> None:
    generator = (number for number in range(3))
    task = replace(small.SMALL, loss=lambda outputs, targets: next(generator))
    with pytest.raises(ModelError) as caught:
        small.run(on_ray, task=task)
    assert caught.value.what == "problem" and "\n" not in str(caught.value)


def test_more_workers_than_cores_are_rejected(on_ray: RayExecutor) -> None:
    with pytest.raises(ConfigError) as caught:
        small.run(RayExecutor(workers=3))
    assert caught.value.keys == ("workers",)
    assert "1 to 2" in str(caught.value)
