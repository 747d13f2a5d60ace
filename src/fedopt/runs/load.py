"""Load the trained model of a run directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import nn

from fedopt.algorithms import Vector
from fedopt.engine.running_statistics import NAME as STATISTICS
from fedopt.engine.running_statistics import POLICIES
from fedopt.errors import ModelError, RunDirectoryError
from fedopt.models.fixed_state import check_same_tensors, describe_parameters
from fedopt.models.flat import Flat
from fedopt.references import is_reference
from fedopt.remote.location import parse_location
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs import model_file
from fedopt.runs.config import Config, read_config
from fedopt.runs.fingerprint import read_fingerprint
from fedopt.runs.remote_run import downloaded
from fedopt.runs.weights import fresh_model
from fedopt.tasks import TASKS, Task, find_task


class LoadedRun(NamedTuple):
    """The model, vector and configuration of a run at one checkpoint.

    Attributes:
        model: the module in evaluation mode.
        x: all trainable parameters as one vector.
        round: number of completed rounds.
        config: the configuration of the run.
    """

    model: nn.Module
    x: Vector
    round: int
    config: Config


def load(
    run: str | os.PathLike[str],
    model: nn.Module | Callable[[], nn.Module] | None = None,
    round: int | None = None,
) -> LoadedRun:
    """Load the model of a run directory.

    Args:
        run: a run directory or its URL.
        model: the module, or a function that builds it, for a run on a user-defined task. The directory does
            not contain its code.
        round: the round of the checkpoint; the newest by default.

    Returns:
        The model, its vector, the round and the configuration.

    Examples:
        >>> result = fedopt.run("synthetic_lr", rounds=1, config={"client.steps": 1}, out="runs/loaded")
        >>> loaded = fedopt.load("runs/loaded")
        >>> loaded.round, bool((loaded.x == result.x).all())
        (1, True)
    """
    with downloaded(parse_location(run, "a run directory or its URL"), checkpoints=True) as path:
        return load_directory(path, model=model, round=round)


def load_directory(
    path: Path,
    task: Task | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    round: int | None = None,
) -> LoadedRun:
    """Load a checkpoint of a run directory. `task` is needed if the run was started with a task object.

    The task builds the model with the settings of the run. `model` replaces it.
    """
    config_file = path / "config.toml"
    if not config_file.is_file():
        raise RunDirectoryError(
            f"no run directory at {path}; name one that `fedopt run` has written", path=path
        )
    config = read_config(config_file)
    if model is None:
        if task is None and config.task not in TASKS and not is_reference(config.task):
            raise ModelError(
                f"{path} does not contain the code of your task {config.task!r}; pass model= to fedopt.load, "
                "task= to fedopt.evaluate and fedopt.export, or --task module:name on the command line",
                what="model",
            )
        try:
            model = fresh_model(task or find_task(config.task), config)
        except TypeError as error:
            raise RunDirectoryError(
                f"{config_file} does not fit the model of {config.task} ({error}); restore it", path=path
            ) from error
    elif not isinstance(model, nn.Module):
        model = model()
    available = checkpoints.rounds(path / "checkpoints")
    if not available:
        raise RunDirectoryError(
            f"{path} has no checkpoint yet; the first is written after checkpoint.every rounds", path=path
        )
    selected = available[-1] if round is None else round
    if selected not in available:
        listed = ", ".join(map(str, available))
        raise RunDirectoryError(f"{path} has no checkpoint of round {selected}; it has {listed}", path=path)
    names = ["x", STATISTICS] if config.buffers in POLICIES else ["x"]
    x, *statistics = checkpoints.read_vectors(path / "checkpoints", selected, names, config.short_hash(64))
    recorded = read_fingerprint(path).get("parameters")
    if isinstance(recorded, dict):
        check_same_tensors(recorded, describe_parameters(model))
    fixed = model_file.read(path)
    if fixed is not None:
        fixed.apply(model, copy=True)
    flat = Flat(model, config.buffers if config.buffers in POLICIES else "freeze")
    if flat.statistics is not None:
        flat.statistics.write(statistics[0])
    if len(x) != flat.d:
        raise ModelError(f"{path} holds {len(x)} parameters and the model has {flat.d}", what="model")
    flat.bind(x.clone())
    model.eval()
    return LoadedRun(model, x, selected, config)
