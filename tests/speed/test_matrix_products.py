"""Matrix products of a training step, compared with counts by hand."""

from __future__ import annotations

import pytest
from speed.matrix_products import LAYERS, MatrixProduct, count_multiply_adds, list_products

from fedopt.tasks import TASKS

_CNN = 26 * 26 * 32 * 9, 24 * 24 * 64 * 288, 9216 * 128, 128 * 62
_AE = 784 * 1000, 1000 * 500, 500 * 250, 250 * 30, 30 * 250, 250 * 500, 500 * 1000, 1000 * 784
_STAGES = (
    4 * 36 * 64 * 576,
    36 * 128 * 576 + 3 * 36 * 128 * 1152 + 36 * 64 * 128,
    36 * 256 * 1152 + 3 * 36 * 256 * 2304 + 36 * 128 * 256,
    36 * 512 * 2304 + 3 * 36 * 512 * 4608 + 36 * 256 * 512,
)
_STEM = 12 * 12 * 64 * 147
# Multiply-adds of one example: the whole forward pass, and the layers whose inputs are data. The backward
# pass needs no gradient for those inputs.
BY_HAND = {
    "emnist_cr": (sum(_CNN), _CNN[0]),
    "emnist_ae": (sum(_AE), _AE[0]),
    "cifar10": (_STEM + sum(_STAGES) + 512 * 10, _STEM),
    "cifar100": (_STEM + sum(_STAGES) + 512 * 100, _STEM),
    "shakespeare": (80 * (8 * 1024 + 256 * 1024 + 2 * 256 * 1024 + 256 * 90), 0),
    "so_nwp": (20 * (96 * 2680 + 670 * 2680 + 670 * 96 + 96 * 10_004), 0),
    "so_lr": (10_000 * 500, 10_000 * 500),
    "synthetic_lr": (60 * 10, 60 * 10),
    "synthetic_mlp": (60 * 32 + 32 * 10, 60 * 32),
}


@pytest.mark.parametrize("task", TASKS)
def test_products_of_a_step_match_counts_by_hand(task):
    forward, on_data = BY_HAND[task]
    for batch_size in (1, 20):
        products = list_products(task, batch_size)
        assert sum(p.multiply_adds for p in products if p.result == "outputs") == batch_size * forward
        assert sum(p.multiply_adds for p in products if p.result == "weight") == batch_size * forward
        assert sum(p.multiply_adds for p in products if p.result == "inputs") == batch_size * (
            forward - on_data
        )
        assert count_multiply_adds(task, batch_size) == batch_size * (3 * forward - on_data)


def test_convolution_is_one_product_of_unfolded_images():
    assert list_products("emnist_cr", 20)[2:5] == [
        MatrixProduct("outputs", 20 * 24 * 24, 288, 64),
        MatrixProduct("weight", 64, 20 * 24 * 24, 288),
        MatrixProduct("inputs", 20 * 24 * 24, 64, 288),
    ]


def test_lstm_state_is_multiplied_per_time_step_and_its_weight_gradient_at_once():
    assert list_products("shakespeare", 4)[3:6] == [
        MatrixProduct("outputs", 4, 256, 1024, times=80),
        MatrixProduct("weight", 1024, 4 * 80, 256),
        MatrixProduct("inputs", 4, 1024, 256, times=80),
    ]


@pytest.mark.parametrize("task", TASKS)
def test_all_weight_matrices_of_a_model_are_counted(task):
    """Embeddings are lookups, not products."""
    matrices = {name: p for name, p in TASKS[task].model().named_parameters() if p.ndim > 1}
    matrices.pop("embedding.weight", None)
    assert sum(layer.inputs * layer.outputs for layer in LAYERS[task]) == sum(
        p.numel() for p in matrices.values()
    )
