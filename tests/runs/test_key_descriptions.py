"""The description of every configuration key."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import pytest
from own_clients import make_task
from typing_extensions import Doc

from fedopt import Algorithm, algorithms
from fedopt.algorithms import ALGORITHMS, OPTIMIZERS
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.runs.config import Config
from fedopt.runs.key_descriptions import DESCRIPTIONS, annotated_toml
from fedopt.runs.prepare import RunRequest
from fedopt.runs.records import flatten
from fedopt.runs.resolve import resolve
from fedopt.tasks import TASKS


def all_configurations() -> list[Config]:
    """Every task with every algorithm, and every optimizer and schedule on both sides."""
    configs = [resolve(task, name, {}) for task in TASKS.values() for name in ALGORITHMS]
    for table, names in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
        for name in names:
            both = {f"client.{table}": name, f"server.{table}": name}
            configs.append(resolve(TASKS["so_lr"], "fedopt", both))
    return configs


def test_every_key_has_a_sentence_and_every_sentence_a_key() -> None:
    used = {key for config in all_configurations() for key in flatten(config.model_dump())}
    assert used | {"data.manifest"} == set(DESCRIPTIONS)
    for sentence in DESCRIPTIONS.values():
        assert sentence.endswith(".") and "\n" not in sentence and sentence[0].isupper()


@pytest.mark.parametrize("algorithm", ["fedyogi", "scaffold", "centralized"])
def test_annotated_configuration_equals_config_toml_and_omits_no_key(algorithm: str) -> None:
    config = resolve(TASKS["shakespeare"], algorithm, {"server.lr": 1e-7})
    text = annotated_toml(config, algorithm)
    assert tomllib.loads(text) == tomllib.loads(config.toml())
    lines, table = text.splitlines(), ""
    documented: dict[str, str] = {}
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("["):
            table = line.strip("[]") + "."
        elif "=" in line and before.startswith("# "):
            documented[table + line.removeprefix("# ").split(" =")[0]] = before.removeprefix("# ")
    every = flatten(config.model_dump())
    assert {key: DESCRIPTIONS[key] for key in every} == {key: documented[key] for key in every}
    assert "# steps =" in lines


def described(
    *, alpha: Annotated[float, Doc("Weight of the dynamic penalty.")] = 0.1, option: str = "a"
) -> Algorithm:
    return algorithms.fedopt(algorithms.sgd(), algorithms.sgd())


def test_user_defined_algorithm_describes_its_own_keys() -> None:
    settings: dict[str, Any] = {"client.alpha": 0.5}
    text = annotated_toml(RunRequest(make_task(), described, settings).prepare().config, described)
    assert "# Weight of the dynamic penalty.\nalpha = 0.5\n" in text
    assert "# Argument 'option' of described.\noption = \"a\"\n" in text
