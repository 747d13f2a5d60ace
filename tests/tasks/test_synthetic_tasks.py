"""The tasks on synthetic(alpha, beta): data options and default settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedopt.errors import ConfigError, DataError
from fedopt.runs.build_problem import build_problem
from fedopt.runs.resolve import resolve
from fedopt.tasks import PAPER_TASKS, TASKS
from fedopt.tasks.base import Task
from fedopt.tasks.synthetic import SYNTHETIC_LR, SYNTHETIC_MLP
from fedopt.tuning.grid import paper_grid

EACH = pytest.mark.parametrize("task", [SYNTHETIC_LR, SYNTHETIC_MLP], ids=["lr", "mlp"])


def test_registry_separates_the_papers_tasks() -> None:
    assert len(PAPER_TASKS) == 7
    assert set(TASKS) - set(PAPER_TASKS) == {"synthetic_lr", "synthetic_mlp"}


@EACH
def test_options_select_the_data(task: Task) -> None:
    config = resolve(task, "fedavg", {"data.clients": 12, "data.beta": 3.0, "data.alpha": 0.5})
    train = build_problem(task, config).federation().train
    assert len(train.ids) == 12
    inputs, labels = train.client(11)
    assert inputs.shape == (train.sizes[11], 60) and labels.shape == (train.sizes[11],)
    assert train.labels is not None and np.array_equal(train.labels.read(11), labels)
    assert not np.array_equal(inputs, task.federation("synthetic", clients=12).train.client(11)[0])


@EACH
def test_defaults_are_those_of_li_et_al(task: Task) -> None:
    config = resolve(task, "fedadam", {})
    assert (config.rounds, config.clients_per_round, config.client.batch_size) == (200, 10, 10)
    assert len(task.federation("synthetic").train.ids) == 30
    assert config.client.lr == 10 ** task.settings.rates["fedadam"].client_lr  # type: ignore[union-attr]
    assert set(paper_grid(task, "fedadam")) == {"client_lr", "server_lr", "tau"}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"data.clients": 0}, "data.clients"),
        ({"data.beta": -1.0}, "data.beta"),
        ({"data.alpha": 1}, "data.alpha"),
    ],
)
def test_invalid_option_is_rejected(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_problem(SYNTHETIC_LR, resolve(SYNTHETIC_LR, "fedavg", settings)).federation()
    assert caught.value.keys == (key,)


def test_directory_of_imported_data_is_rejected() -> None:
    with pytest.raises(DataError) as caught:
        SYNTHETIC_LR.federation("elsewhere")
    assert str(caught.value.path) == "elsewhere"
