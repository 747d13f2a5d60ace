"""Configurations in config.toml, and their hash."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.errors import RunDirectoryError
from fedopt.runs.config import from_document, read_config
from fedopt.runs.records import flatten
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

CR = TASKS["emnist_cr"]


VARIED = [
    ("fedavg", {}),
    ("scaffold", {"client.option": "I", "client.steps": 3}),
    ("fedyogi", {"variant": "as_run", "server.tau": 1e-5, "weighting": "uniform"}),
    ("fedopt", {"client.optimizer": "adam", "server.optimizer": "adabound", "client.schedule": "plateau"}),
    ("lookahead", {"client.state": "average"}),
    ("centralized", {"client.schedule": "staircase", "seed": 7}),
]


@pytest.mark.parametrize("task", ["emnist_cr", "emnist_ae"])
@pytest.mark.parametrize(("algorithm", "changes"), VARIED)
def test_configuration_survives_config_toml(task: str, algorithm: str, changes: dict[str, Any]) -> None:
    config = resolve(TASKS[task], algorithm, changes)
    again = from_document(tomllib.loads(config.toml()))
    assert again == config
    assert again.short_hash() == config.short_hash()


@given(
    client_lr=st.floats(min_value=1e-300, max_value=3e38),
    tau=st.floats(min_value=1e-150, max_value=1e19),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_config_toml_keeps_all_digits(client_lr: float, tau: float, seed: int) -> None:
    config = resolve(CR, "fedadam", {"client.lr": client_lr, "server.tau": tau, "seed": seed})
    again = from_document(tomllib.loads(config.toml()))
    assert (again.client.lr, again.server.tau, again.seed) == (client_lr, tau, seed)
    assert again == config


@pytest.mark.parametrize(
    "text", ["", "rounds = ", "rounds = 3", "\x00", "task = 'emnist_cr'\nunknown = 1", '[client]\nlr = "x"']
)
def test_damaged_config_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(RunDirectoryError, match=r"config\.toml is damaged \(.*\)[^\n]*$") as error:
        read_config(file)
    assert error.value.path == tmp_path


def test_hash_does_not_depend_on_rounds() -> None:
    hashes = {resolve(CR, "fedavg", {"rounds": rounds}).short_hash() for rounds in (1, 2, 1500)}
    assert len(hashes) == 1


OTHER_VALUES = {
    "task": "other",
    "algorithm": "other",
    "weighting": "uniform",
    "sampling": "as_run",
    "variant": "as_run",
    "init": "sha256:0",
    "buffers": "freeze",
    "eval.final": "full",
    "client.optimizer": "sgd",
    "server.optimizer": "sgd",
    "client.schedule": "constant",
    "server.schedule": "constant",
    "loss.reduction": "sum",
    "data.source": "elsewhere",
    "model.activations": "as_printed",
}


def other(key: str, value: Any) -> Any:
    """Another valid value for a key."""
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2 if value else 0.5


def test_hash_does_not_depend_on_the_frequency_of_evaluations() -> None:
    often = resolve(CR, "fedavg", {"eval.every": 1, "eval.last_every": 3})
    assert often.short_hash() == resolve(CR, "fedavg", {}).short_hash()
    assert often.identity() == resolve(CR, "fedavg", {"rounds": 8}).identity()


def test_hash_of_runs_that_did_not_record_the_padding_is_unchanged() -> None:
    repeat, zero = (resolve(TASKS["shakespeare"], "fedavg", {"model.padding": p}) for p in ("repeat", "zero"))
    document = repeat.document()
    del document["model"]["padding"]  # as an earlier version wrote it
    assert from_document(document).identity() == repeat.identity()
    assert zero.short_hash() != repeat.short_hash()


def test_hash_depends_on_all_other_keys() -> None:
    changes = {"client.optimizer": "adam", "server.optimizer": "adabound"}
    changes |= {"client.schedule": "staircase", "server.schedule": "plateau"}
    config = resolve(CR, "fedopt", changes)
    flat = flatten(config.document())
    hashes = {config.short_hash()}
    frequency = ("rounds", "eval.every", "eval.last_every")
    keys = [key for key in flat if key not in frequency and not key.startswith("stop.")]
    for key in keys:
        document = config.document()
        table, _, name = key.rpartition(".")
        (document[table] if table else document)[name] = other(key, flat[key])
        hashes.add(type(config).model_validate(document).short_hash())
    assert len(keys) > 40
    assert len(hashes) == 1 + len(keys)


def test_hash_does_not_depend_on_the_order_and_form_of_settings() -> None:
    one = resolve(CR, "fedadam", {"server.lr": 1, "client.lr": 0.5, "seed": 3})
    two = resolve(CR, "fedadam", {"seed": 3, "client.lr": 0.5, "server.lr": 1.0})
    assert one.short_hash() == two.short_hash()
