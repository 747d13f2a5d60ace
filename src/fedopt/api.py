"""The library's front door: `fedopt.run` and `fedopt.load`."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedopt.algorithms import ALGORITHMS, Algorithm, Entry, Vector
from fedopt.algorithms.state import mapped
from fedopt.data import Arrays, Federation, Split, from_arrays, from_function
from fedopt.data.store import StoredSplit, open_store
from fedopt.data.store.locations import data_source
from fedopt.engine.executors import open_executor
from fedopt.engine.executors.devices import vectorised_on
from fedopt.engine.loop import Step
from fedopt.engine.worker import seeded
from fedopt.errors import UserError, unknown
from fedopt.models.flat import Flat
from fedopt.runs import checkpoint as checkpoints
from fedopt.runs.build_problem import problem_of
from fedopt.runs.config import Config, read_config, resolve
from fedopt.runs.execute import RunResult, execute
from fedopt.runs.weights import read_weights
from fedopt.tasks import TASKS, Task, find_task
from fedopt.tasks.metrics import accuracy

Clients = Mapping[str, Sequence[Any]] | Callable[[str], Sequence[Any]] | str | os.PathLike[str]


def _as_is(examples: tuple[Tensor, ...], rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
    inputs, targets = (part.float() if part.dtype == torch.float64 else part for part in examples)
    return inputs, targets


def _pair(arrays: Sequence[Any], client: str) -> Sequence[Any]:
    if len(arrays) not in (0, 2):  # nothing at all is refused as a client without examples
        raise UserError(f"client {client!r} has {len(arrays)} arrays; a client is a pair (inputs, targets)")
    return arrays


def _read_pair(read: Callable[[str], Sequence[Any]], client: str) -> Sequence[Any]:
    return _pair(read(client), client)


def _given(value: Any, *ignored: Any) -> Any:
    return value


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls what the user gave; its keyword arguments are the user's own and no configuration of ours."""
    return function(*arguments)


def _own_federation(
    clients: Clients, test: Sequence[Any] | Mapping[str, Sequence[Any]] | None, ids: Sequence[str] | None
) -> Federation:
    if isinstance(clients, str | os.PathLike):
        store = open_store(Path(clients))
        train, testing = (
            Split(split.ids, split.sizes, partial(_stored_pair, split))
            for split in (store.split("train"), store.split("test"))
        )
        return Federation(train, testing, str(clients))
    if test is None:
        raise UserError("a test set is needed: pass test=(inputs, targets)")
    if callable(clients):
        if ids is None:
            raise UserError("clients is a function, so the ids are needed too: pass client_ids=[...]")
        train = from_function(partial(_read_pair, clients), ids)
    elif isinstance(clients, Mapping):
        train = from_arrays({name: _pair(arrays, name) for name, arrays in clients.items()})
    else:
        raise UserError(f"clients is a {type(clients).__name__}; pass a mapping of id to (inputs, targets)")
    return Federation(train, from_arrays(test if isinstance(test, Mapping) else {"test": test}), "own")


def _stored_pair(split: StoredSplit, client: int) -> Arrays:
    columns = split.columns(client)
    return np.asarray(columns["features"]), np.asarray(columns["label"])


def own_task(
    model: nn.Module | Callable[[], nn.Module],
    loss: Callable[[Tensor, Tensor], Tensor],
    clients: Clients,
    test: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    client_ids: Sequence[str] | None = None,
    metrics: Mapping[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] | None = None,
    better: str = "higher",
    name: str = "own",
) -> Task:
    """A task from your own parts.

    `model` is a module, or a function that builds one (then the seed decides its initial weights); `loss` a
    function of outputs and targets, such as `torch.nn.functional.cross_entropy`. `clients` maps ids to pairs
    of arrays (inputs, targets), is a function from an id to such a pair (with `client_ids`), or names a
    directory that `fedopt data import own` has written, which has a test set too. `test` is a pair of arrays,
    or a mapping like `clients`. `metrics` maps names to functions of outputs and targets that return the
    numerator and the denominator of each example, as `fedopt.tasks.metrics.accuracy` does; the first is the
    headline.
    """
    federation = _own_federation(clients, test, client_ids)
    train = federation.train
    build = partial(copy.deepcopy, model) if isinstance(model, nn.Module) else partial(_called, model)
    return Task(
        name=name,
        what="your own",
        federation=partial(_given, federation),
        model=build,
        prepare=_as_is,
        loss=partial(_called, loss),
        metrics=metrics or {"accuracy": accuracy},
        better=better,
        clients_per_round=min(10, len(train.ids)),
    )


def run(
    task: str | Task,
    *,
    algorithm: str | Algorithm | Callable[[], Algorithm] = "fedavg",
    rounds: int | None = None,
    seed: int | None = None,
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    executor: str = "serial",
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    init: str | os.PathLike[str] | None = None,
    callback: Callable[[Step], None] | None = None,
    buffers: str | None = None,
    tensorboard: bool = False,
    device: str = "cpu",
) -> RunResult:
    """Train a task by a federated algorithm.

    `task` is a name of `fedopt tasks` or comes from `fedopt.own_task`. `algorithm` is a name of
    `fedopt algorithms`, or an `Algorithm` of yours (a function that builds one, if worker processes are to
    import it). `config` holds keys as in `config.toml`, dotted: {"client.lr": 0.1}. With `out` the run is
    written there and continued if it exists. `callback` is called after every round; `tensorboard`
    writes TensorBoard event files too. With `executor="processes"` your script needs the usual
    `if __name__ == "__main__":`. With `executor="vectorised"`, and with any `device` but the CPU ("cuda",
    "mps", or "auto" for the best there is), clients train many at a time: the same up to rounding.
    """
    chosen = find_task(task) if isinstance(task, str) else task
    settings = dict(config or {})
    given = (("rounds", rounds), ("seed", seed), ("buffers", buffers))
    settings |= {key: value for key, value in given if value is not None}
    name, entry, build = _algorithm(algorithm)
    if data is not None and not isinstance(task, str):
        raise UserError("data is for the named tasks; a task of your own has its clients already")
    source = data_source(data or "synthetic") if isinstance(task, str) else "own"
    resolved = resolve(chosen, name, settings, source, entry)
    initial = None
    if init is not None:
        initial, checksum = read_weights(Path(init), fresh_model(chosen, resolved), resolved.buffers)
        resolved = resolved.model_copy(update={"init": checksum})
    where = vectorised_on(executor, device)
    resolved = resolved.model_copy(update={"vectorised": where})
    problem = problem_of(chosen, resolved, build)
    with open_executor(executor, workers, where) as place:
        return execute(
            resolved,
            problem,
            place,
            out=Path(out) if out is not None else None,
            better=chosen.better,
            initial=initial,
            on_step=_to_keep(callback) if callback else None,
            tensorboard=tensorboard,
        )


def _to_keep(callback: Callable[[Step], None]) -> Callable[[Step], None]:
    """Steps whose vectors the next round leaves alone."""

    def on_step(step: Step) -> None:
        at = step.position
        callback(step._replace(position=at._replace(state=mapped(at.state, torch.clone))))

    return on_step


def _algorithm(
    algorithm: str | Algorithm | Callable[[], Algorithm],
) -> tuple[str, Entry, Callable[[], Algorithm] | None]:
    """Name, registry entry and, for one of the user's own, how to build it."""
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise unknown("algorithm", algorithm, ALGORITHMS)
        return algorithm, ALGORITHMS[algorithm], None
    own = Entry("your own", "", lambda: None, clients=(), servers=())  # type: ignore[arg-type,return-value]
    if isinstance(algorithm, Algorithm):
        return "own", own, partial(_given, algorithm)
    if isinstance(algorithm, partial):  # its arguments are part of which run it is
        arguments = [*map(repr, algorithm.args), *(f"{k}={v!r}" for k, v in algorithm.keywords.items())]
        return f"{getattr(algorithm.func, '__name__', 'own')}({', '.join(arguments)})", own, algorithm
    return getattr(algorithm, "__name__", "own"), own, algorithm


def fresh_model(task: Task, config: Config) -> nn.Module:
    """The task's model as the run's seed initialises it."""
    with seeded(config.seed, "init"):
        return task.model(**config.model)


class LoadedRun(NamedTuple):
    """A run as it stands on disk."""

    model: nn.Module  # with the trained weights, in evaluation mode
    x: Vector
    round: int
    config: Config


def load(
    run: str | os.PathLike[str],
    model: nn.Module | Callable[[], nn.Module] | None = None,
    round: int | None = None,
) -> LoadedRun:
    """The trained model of a run directory: its newest checkpoint, or that of `round`.

    A run on a task of your own does not hold your module: pass it, or a function that builds it, as `model`.
    """
    path = Path(run)
    file = path / "config.toml"
    if not file.is_file():
        raise UserError(f"no run directory at {path}; name one that `fedopt run --out DIR` has written")
    config = read_config(file)
    if model is None:
        if config.task not in TASKS:
            raise UserError(
                f"{path} is a run of your own task {config.task!r}, whose module it does not hold; in "
                "Python, fedopt.load(run, model=your_module)"
            )
        model = fresh_model(TASKS[config.task], config)
    elif not isinstance(model, nn.Module):
        model = model()
    done = checkpoints.rounds(path / "checkpoints")
    if not done:
        raise UserError(f"{path} has no checkpoint yet; let it run until checkpoint.every rounds are done")
    at = done[-1] if round is None else round
    if at not in done:
        raise UserError(f"{path} has no checkpoint of round {at}; it has {', '.join(map(str, done))}")
    x = checkpoints.read_vector(path / "checkpoints", at, "x")
    flat = Flat(model, buffers="freeze")
    if len(x) != flat.d:
        raise UserError(f"{path} holds {len(x)} parameters and the model has {flat.d}")
    flat.bind(x.clone())
    model.eval()
    return LoadedRun(model, x, at, config)
