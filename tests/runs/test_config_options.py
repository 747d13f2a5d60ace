"""Keyword arguments of registered functions are configuration keys, without further code."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from typed import fedopt, refused, small_command

from fedopt import algorithms
from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, Algorithm, Optimizer
from fedopt.algorithms.options import Fraction, Positive
from fedopt.algorithms.schedules import SCHEDULES, Schedule
from fedopt.engine.sampling import SAMPLERS
from fedopt.errors import ConfigError
from fedopt.runs.config import Config, from_document, read_config
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS

CR = TASKS["emnist_cr"]


def clipped(*, limit: Positive = 0.5, mode: Literal["value", "sign"] = "value") -> Optimizer:
    def update(x: Any, delta: Any, eta: float, t: int, state: Any) -> Any:
        step = delta.sign() * limit if mode == "sign" else delta.clamp(-limit, limit)
        return torch.add(x, step, alpha=eta), state

    return Optimizer(update)


def noisy(client: Optimizer, server: Optimizer, *, strength: Fraction = 0.25, label=None) -> Algorithm:
    return algorithms.fedopt(client, server)


def halving(lr: float, *, interval: int = 3) -> Schedule:
    return Schedule(lambda t, state: lr * 0.5 ** (t // interval), {}, lambda state, loss: state)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new optimizer, schedule and algorithm, added to the registries and nowhere else."""
    entry = type(ALGORITHMS["fedprox"])
    monkeypatch.setitem(OPTIMIZERS, "clipped", clipped)
    monkeypatch.setitem(SCHEDULES, "halving", halving)
    monkeypatch.setitem(ALGORITHMS, "noisy", entry("noise", "", noisy, servers=("clipped",)))


def test_keyword_arguments_of_new_functions_are_keys_with_their_defaults() -> None:
    config = resolve(CR, "noisy", {"server.schedule": "halving"}).document()
    assert (config["server"]["limit"], config["server"]["mode"]) == (0.5, "value")
    assert config["server"]["interval"] == 3
    assert config["client"]["strength"] == 0.25


def test_new_keys_can_be_set() -> None:
    settings = {"server.limit": 2, "server.mode": "sign", "client.strength": 0.5, "client.label": "any type"}
    config = resolve(CR, "noisy", settings).document()
    assert (config["server"]["limit"], config["server"]["mode"]) == (2.0, "sign")
    assert (config["client"]["strength"], config["client"]["label"]) == (0.5, "any type")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.limit", 0.0),
        ("server.limit", "wide"),
        ("server.mode", "norm"),
        ("client.strength", 1.0),
        ("client.strength", True),
        ("server.strength", 0.5),
        ("client.limit", 0.5),
        ("server.interval", 5),
    ],
)
def test_values_of_new_keys_are_checked_by_their_annotations(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(CR, "noisy", {key: value})
    assert error.value.keys == (key,)


def test_new_keys_are_set_on_the_command_line_and_stored_in_the_run(tmp_path: Path) -> None:
    words = ["--algorithm", "noisy", "--rounds", "1", "--set", "server.limit=0.125", "--out", tmp_path / "a"]
    done = fedopt(*small_command("run", *words))
    assert done.code == 0, done.err
    stored = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    assert (stored["server"]["limit"], stored["client"]["strength"]) == (0.125, 0.25)
    assert "finished" in fedopt(*small_command("run", *words)).err
    refused(fedopt(*small_command("run", *words, "--set", "server.limit=-1")), "server.limit")


def test_configurations_with_generated_sections_survive_toml_and_pickle(tmp_path: Path) -> None:
    config = resolve(CR, "noisy", {"client.strength": 0.75})
    file = tmp_path / "config.toml"
    file.write_text(config.toml())
    for copy in (read_config(file), pickle.loads(pickle.dumps(config)), from_document(config.document())):
        assert copy == config and copy.short_hash() == config.short_hash()


def test_every_sampler_is_a_value_of_the_configuration() -> None:
    for name in SAMPLERS:
        assert resolve(CR, "fedavg", {"sampling": name}).sampling == name
    assert issubclass(type(resolve(CR, "fedavg", {})), Config)
