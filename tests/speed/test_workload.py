"""The workload is reproducible and gives the same model in the engine and in plain PyTorch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from bench_rounds import run_engine_round, run_pytorch_round
from speed.peers import compare_first_round
from speed.workload import WORKLOADS, build_workload

from fedopt.models.flat import Flat
from fedopt.tasks import TASKS


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "cifar100"])
def test_pytorch_and_engine_train_the_workload_to_the_same_model(name, peer_modules, tmp_path):
    workload = build_workload(name, tmp_path, clients=1 if name == "cifar10" else 2, steps=1)
    ours = run_engine_round(workload)
    comparison = compare_first_round(workload, ours, run_pytorch_round(*peer_modules, tmp_path))
    if name != "emnist_cr":  # its dropout masks differ
        assert comparison["distance"] < 1e-4
    assert json.loads((tmp_path / "work.json").read_text())["count"] == sum(
        p.numel() for p in TASKS[workload.task].model().parameters()
    )


def test_dense_and_sparse_bags_of_words_give_the_same_outputs(peer_modules):
    _, networks = peer_modules
    words = torch.tensor([[3, 3, 10_001, 0], [10_000, 1, 2, 7], [0, 0, 0, 0]])
    sparse, dense = networks.TagRegression(), networks.DenseTagRegression()
    with torch.no_grad():
        sparse.kernel.normal_(generator=torch.Generator().manual_seed(0))
        dense.kernel.copy_(sparse.kernel)
    torch.testing.assert_close(sparse(words), dense(words), rtol=1e-5, atol=1e-6)


def test_peers_networks_have_the_parameters_of_ours(peer_modules):
    _, networks = peer_modules
    for task in TASKS:
        flat = Flat(TASKS[task].model())
        theirs = [(name, p.shape) for name, p in networks.NETWORKS[task]().named_parameters()]
        assert sorted(theirs) == sorted(zip(flat.names, flat.shapes, strict=True))


def test_shortened_workload_describes_the_cut(small_workload):
    widths = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
    forward = sum(a * b for a, b in zip(widths, widths[1:], strict=False))
    assert small_workload.examples == (20, 20) and small_workload.steps == (1, 1)
    assert small_workload.cut == "2 of 10 clients, steps per client limited to 1"
    assert small_workload.multiply_adds == 40 * (3 * forward - 784 * 1000)


def test_cohort_is_reproducible(small_workload, tmp_path):
    repeated = build_workload("emnist_ae", tmp_path, clients=2, steps=1)
    assert (tmp_path / "work.json").read_text() == (small_workload.directory / "work.json").read_text()
    with np.load(tmp_path / "raw.npz") as a, np.load(small_workload.directory / "raw.npz") as b:
        assert a.files == b.files and all(np.array_equal(a[name], b[name]) for name in a.files)
    assert torch.equal(repeated.x, small_workload.x)


@pytest.mark.parametrize("name", ["small_lr", "small_mlp"])
def test_small_workload_has_ten_clients_with_ten_full_batches(name, tmp_path):
    workload = build_workload(name, tmp_path, clients=None, steps=None)
    assert workload.examples == (100,) * 10 and workload.steps == (10,) * 10
    assert workload.problem.local.batch_size == 10 and workload.cut is None
