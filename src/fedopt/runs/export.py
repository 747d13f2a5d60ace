"""Export a run's model: safetensors with the module's own parameter names, and a model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from fedopt.errors import RunDirectoryError
from fedopt.files import write_atomically
from fedopt.formatting import metric_unit
from fedopt.runs.load import load
from fedopt.runs.records import flatten, read_run


def write_export(run: Path, to: Path, model: nn.Module | Callable[[], nn.Module] | None = None) -> list[Path]:
    """Write `model.safetensors` and `MODEL_CARD.md` to the directory `to`. Return their paths.

    `model` is needed if the run was started with a task object.
    """
    loaded, record = load(run, model), read_run(run)
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
    write_atomically(card, _card(record.info, flatten(record.config), loaded.round))
    return [weights_file, card]


def _card(info: dict[str, object], config: dict[str, object], round: int) -> str:
    metric = str(info["metric"])
    unit, value = metric_unit(metric), info.get("value")
    result = unit.format(value) if isinstance(value, float) else "not finished"
    note = (
        " (generated; results are not comparable with the real data)" if info["data"] == "synthetic" else ""
    )
    rows = "\n".join(f"| `{key}` | `{value}` |" for key, value in config.items())
    return f"""# {info["task"]}, {info["algorithm"]}, round {round}

Trained by federated optimization with fedopt {info["fedopt"]}.

| | |
|---|---|
| task | {info["task"]} |
| data | {info["data"]}{note} |
| parameters | {info.get("params", "see the weights")} |
| {unit.name}, mean over the evaluations of the last 100 rounds | {result} |
| x sha256 | {info.get("x_sha256", "not finished")} |
| command | `{info["command"]}` |

The weights are in `model.safetensors` under the module's own parameter names.

## Configuration

| key | value |
|---|---|
{rows}
"""
