"""Export a run's model: safetensors with the module's own parameter names, and a model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from fedopt.errors import RunDirectoryError
from fedopt.files import write_atomically
from fedopt.runs.build_problem import build_problem
from fedopt.runs.evaluation import Evaluation
from fedopt.runs.load import load_directory
from fedopt.runs.model_card import example_form, model_card
from fedopt.runs.records import read_run
from fedopt.tasks import Task


def write_export(
    run: Path,
    to: Path,
    task: Task | None = None,
    model: nn.Module | None = None,
    evaluation: Evaluation | None = None,
) -> list[Path]:
    """Write `model.safetensors` and `MODEL_CARD.md` to the directory `to`. Return their paths.

    Args:
        run: the run directory.
        to: the directory of the files.
        task: the task of the run; None if it was passed as an object and is not known here.
        model: the module, if the task is not known.
        evaluation: the evaluation of the newest model of the run, for the card.
    """
    loaded, record = load_directory(run, task, model if task is None else None), read_run(run)
    missing = [key for key in ("metric", "data", "command", "fedopt") if key not in record.info]
    if missing:
        raise RunDirectoryError(f"{run / 'run.json'} is damaged: it has no {missing[0]!r}", path=run)
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to {to}: {error.strerror}; choose another directory", path=to
        ) from error
    weights = {name: torch.clone(v).contiguous() for name, v in loaded.model.state_dict().items()}
    weights_file, card = to / "model.safetensors", to / "MODEL_CARD.md"
    write_atomically(weights_file, save(weights, metadata={"format": "pt"}))
    build = None if task is None or not _is_importable(task.model) else task.model
    form = None
    if task is not None and evaluation is not None:
        problem = build_problem(task, loaded.config)
        form = example_form(problem, problem.federation(), loaded.model)
    write_atomically(card, model_card(record, loaded.round, loaded.model, build, form, evaluation))
    return [weights_file, card]


def _is_importable(build: Callable[..., nn.Module]) -> bool:
    """Whether other programs can import the function or class that builds the module."""
    name = getattr(build, "__qualname__", "")
    return name.isidentifier() and getattr(build, "__module__", "__main__") != "__main__"
