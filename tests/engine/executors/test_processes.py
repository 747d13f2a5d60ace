"""Worker processes give the same bits as the serial executor, also when workers die."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import small
import torch
from small import run_round
from worker_pool import Pool

from fedopt.engine.executors.processes import Processes
from fedopt.errors import DataError, ModelError, WorkerError
from fedopt.tasks import TASKS

pytestmark = pytest.mark.xdist_group("workers")  # one process of the test session starts them


ALL_CLIENTS = {"rounds": 1, "clients_per_round": 24, "client.steps": 1}  # 24 clients, sorted by size


def in_order(clients: int = 24) -> list[int]:
    """Return all clients, the largest first (all sizes differ)."""
    return sorted(range(clients), key=lambda i: -small.sizes(clients)[i])


@pytest.mark.parametrize("case", small.CASES)
def test_any_number_of_workers_equals_serial_to_the_bit(case: str, pool: Pool):
    algorithm, settings = small.CASES[case]
    serial = small.run(None, algorithm, settings)
    assert not torch.equal(serial.x, small.setup(None, algorithm, settings)[1])
    for workers in (1, 2, 3):
        result = small.run(pool(workers), algorithm, settings)
        assert torch.equal(result.x, serial.x)
        assert result.x_sha256 == serial.x_sha256
        assert [line["loss"] for line in result.train] == [line["loss"] for line in serial.train]
        assert [line["accuracy"] for line in result.test] == [line["accuracy"] for line in serial.test]


def test_paper_task_on_workers_equals_serial_to_the_bit(pool: Pool):
    settings = {
        "data.clients": 12,
        "clients_per_round": 4,
        "client.steps": 2,
        "client.batch_size": 20,
        "rounds": 2,
        "eval.sample": 100,
    }
    task = TASKS["emnist_cr"]
    serial = small.run(None, "fedyogi", settings, task)
    workers = small.run(pool(2), "fedyogi", settings, task)
    assert serial.params == 1_206_590
    assert serial.x_sha256 == workers.x_sha256
    assert [line["loss"] for line in serial.test] == [line["loss"] for line in workers.test]


def test_clients_may_finish_in_any_order(pool: Pool, tmp_path: Path):
    """The first of 24 clients takes longer than all others, which fill the window of slots and wait."""
    order = in_order()
    expected = small.run(None, "scaffold", ALL_CLIENTS)
    log = tmp_path / "finished"
    task = replace(small.SMALL, prepare=partial(small.late, str(log), order[0]))
    for workers in (2, 3):
        log.unlink(missing_ok=True)
        result = small.run(pool(workers), "scaffold", ALL_CLIENTS, task)
        noted = [int(line) for line in log.read_text().split()]  # twice if a worker checks the model with it
        finished = sorted(set(noted), key=noted[::-1].index, reverse=True)
        assert sorted(finished) == sorted(order)
        assert finished != order, "the delays had no effect"
        assert finished.index(order[0]) >= 4 * workers - 1, "the others did not fill the window"
        assert torch.equal(result.x, expected.x)


def test_workers_use_one_thread_and_the_environment_is_restored(pool: Pool):
    before = os.environ.get("OMP_NUM_THREADS")
    small.run(pool(2), task=replace(small.SMALL, prepare=small.one_threaded))
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_denormal_flushing_of_the_user_does_not_change_the_result(pool: Pool):
    """Flushing is a setting of each thread, so it would affect this process but not the workers."""
    task = replace(small.SMALL, prepare=small.tiny, model=small.amplifier)
    expected = small.run(pool(2), task=task)
    assert not torch.equal(expected.x, small.setup(task=task)[1]), "denormal numbers must matter"
    torch.set_flush_denormal(True)
    try:
        results = [small.run(executor, task=task) for executor in (None, pool(2))]
    finally:
        torch.set_flush_denormal(False)
    assert [result.x_sha256 for result in results] == [expected.x_sha256] * 2


@pytest.mark.parametrize(("algorithm", "vectors"), [("fedavg", 1), ("scaffold", 4)])
def test_shared_memory_depends_on_workers_not_on_the_cohort(algorithm: str, vectors: int, pool: Pool):
    """A slot of SCAFFOLD holds four vectors: c_i before; delta x, delta c and c_i after."""
    executor = pool(2)
    settings = {"data.clients": 200, "clients_per_round": 200, "rounds": 1, "client.steps": 1}
    result = small.run(executor, algorithm, settings)
    assert result.train[0]["clients"] == 200
    assert executor._shared.rows.shape[0] <= 4 * 2 * vectors
    assert executor._shared.rows.shape[1] < small.D + 16


def test_killed_worker_is_replaced_and_the_result_is_the_same(pool: Pool, tmp_path: Path):
    executor, mark, victim = pool(3), tmp_path / "mark", in_order()[5]
    expected, x = small.setup(None, "scaffold", cohort=24)
    after, _ = run_round(expected, expected.algorithm.init(x), 0, 0.1, 1.0)
    after, _ = run_round(expected, after, 1, 0.1, 1.0)

    task = replace(small.SMALL, prepare=partial(small.hung_once, str(mark), victim))
    killed: list[int] = []

    def kill_hanging_worker() -> None:
        while not (mark.exists() and mark.read_text().strip()):
            time.sleep(0.005)
        killed.append(int(mark.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    setup, x = small.setup(executor, "scaffold", task=task, cohort=24)
    pids = executor.pids
    killer = threading.Thread(target=kill_hanging_worker, daemon=True)
    killer.start()
    began = time.monotonic()
    state, report = run_round(setup, setup.algorithm.init(x), 0, 0.1, 1.0)
    killer.join(timeout=5)
    assert killed and killed[0] in pids, "a worker was killed during the round"
    assert time.monotonic() - began < 50, "the round must not wait for the dead worker"
    assert killed[0] not in executor.pids and len(executor.pids) == 3, "the worker is replaced"
    assert (report.clients, report.rejected) == (24, ())
    state, _ = run_round(setup, state, 1, 0.1, 1.0)
    assert torch.equal(state.x, after.x) and torch.equal(state.c, after.c)


def test_client_that_kills_every_worker_raises_worker_error(pool: Pool):
    executor, client = pool(3), 17
    setup, x = small.setup(
        executor, task=replace(small.SMALL, prepare=partial(small.deadly, client)), cohort=24
    )
    with pytest.raises(WorkerError) as caught:
        run_round(setup, setup.algorithm.init(x), 4, 0.1, 1.0)
    assert (caught.value.client, caught.value.round) == ("c17", 5)
    assert "\n" not in str(caught.value) and "workers" in str(caught.value)
    assert small.run(executor).x_sha256 == small.run().x_sha256, "the workers can be used again"


def test_worker_that_died_between_problems_is_replaced():
    with closing(Processes(1)) as executor:
        setup, x = small.setup(executor)
        run_round(setup, setup.algorithm.init(x), 0, 0.1, 1.0)
        victim = executor._workers[0].process
        victim.kill()
        victim.join()
        assert small.run(executor).x_sha256 == small.run().x_sha256


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_the_loss_becomes_worker_error_with_client_and_round(workers: int, pool: Pool):
    executor = pool(workers) if workers else None
    task = replace(small.SMALL, prepare=partial(small.marked, 13), loss=small.picky)
    setup, x = small.setup(executor, task=task, cohort=24)
    with pytest.raises(WorkerError) as caught:
        run_round(setup, setup.algorithm.init(x), 2, 0.1, 1.0)
    assert (caught.value.client, caught.value.round) == ("c13", 3)
    assert "ValueError" in str(caught.value) and "\n" not in str(caught.value)


def test_workers_are_usable_after_a_client_has_failed(pool: Pool):
    executor = pool(3)
    task = replace(small.SMALL, prepare=partial(small.marked, in_order()[0]), loss=small.picky)
    for _ in range(3):
        with pytest.raises(WorkerError):
            small.run(executor, settings=ALL_CLIENTS, task=task)
    pids = executor.pids
    assert small.run(executor, "scaffold").x_sha256 == small.run(None, "scaffold").x_sha256
    assert executor.pids == pids, "no worker was replaced"


def broken_network() -> None:
    raise RuntimeError("no network")


def test_workers_are_usable_after_a_problem_could_not_be_loaded(pool: Pool):
    executor, problem = pool(3), small.problem()
    data = problem.federation()
    with pytest.raises(WorkerError) as caught:
        executor.load(replace(problem, federation=broken_network), data, data.test.client(0))
    assert "no network" in str(caught.value)
    assert small.run(executor).x_sha256 == small.run().x_sha256


def test_user_error_in_a_worker_keeps_its_type(pool: Pool):
    task = replace(small.SMALL, federation=small.with_an_empty_client)
    with pytest.raises(DataError) as caught:
        small.run(pool(2), settings=ALL_CLIENTS, task=task)
    assert caught.value.client == "c05"


def test_problem_that_workers_cannot_import_is_rejected(pool: Pool):
    task = replace(small.SMALL, loss=lambda outputs, targets: small.cross_entropy(outputs, targets))
    with pytest.raises(ModelError) as caught:
        small.run(pool(2), task=task)
    assert caught.value.what == "problem"
    assert "executor='serial'" in str(caught.value) and "\n" not in str(caught.value)
    assert small.run(pool(2)).x_sha256 == small.run().x_sha256
