"""Run directories written by hand, for what is drawn from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedopt.reproduction.published import DATASET_OF, TASK_NAMES
from fedopt.reproduction.scales import Scale
from fedopt.reproduction.sources import Source
from fedopt.reproduction.study import Spec, Study
from fedopt.tasks import TASKS

TINY = Scale(
    name="tiny",
    what="two rounds",
    remarks=("Two rounds.",),
    rounds=2,
    cohort=2,
    steps=1,
    width=2,
    samples={"": 10},
    eval_every=1,
    eval_last_every=1,
    full_test=False,
    decay_rounds=1,
    epochs=2,
    writers=10,
    keep_checkpoints=False,
)


def study(
    out: Path,
    tasks: Sequence[str] = tuple(TASK_NAMES),
    words: Mapping[str, str] | None = None,
    scale: Scale = TINY,
) -> Study:
    """A study on data that is synthetic, whatever word stands for it."""
    sources = {name: Source(name, "synthetic", "synthetic") for name in set(DATASET_OF.values())}
    sources |= {name: Source(name, "synthetic", word) for name, word in (words or {}).items()}
    return Study(scale, out, sources, tuple(tasks))


def write(
    study: Study,
    spec: Spec,
    value: float | None = 0.5,
    train_loss: float = 1.0,
    losses: tuple[float, float] = (2.0, 1.0),
    status: str = "done",
    full_test: float | None = None,
) -> Path:
    """The directory of a finished run: validation metric, training loss, first and later validation loss."""
    trial, metric = study.trial(spec), TASKS[spec.task].metric
    trial.path.mkdir(parents=True)
    rounds = trial.config.rounds
    first = {"round": 0, "split": "test", "loss": losses[0], metric: 0.01}
    lines = [first]
    for t in range(1, rounds + 1):
        lines.append({"round": t, "split": "train", "loss": train_loss})
        lines.append({"round": t, "split": "test", "loss": losses[1], metric: value})
    (trial.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (trial.path / "config.toml").write_text(trial.config.toml())
    info = {"task": spec.task, "algorithm": spec.algorithm, "seed": 0, "rounds": rounds, "status": status}
    info |= {
        "data": "synthetic",
        "metric": metric,
        "better": TASKS[spec.task].better,
        "command": trial.command,
    }
    info |= {"value": value, "train_loss": train_loss} if status == "done" else {}
    info |= {"full_test": {metric: full_test}} if full_test is not None else {}
    (trial.path / "run.json").write_text(json.dumps(info))
    return trial.path


def write_all(study: Study, specs: Sequence[Spec], value: Callable[[Spec], float | None]) -> None:
    """Every run once; None is a run that diverged."""
    for spec in specs:
        if not study.trial(spec).path.exists():
            found = value(spec)
            status = "diverged" if found is None else "done"
            write(study, spec, found, 1 - (found or 0.0), status=status)
