"""From a configuration to something that runs: a `Problem` for the workers, schedules for the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, Algorithm, build, keywords
from fedopt.algorithms.schedules import SCHEDULES, Schedule, warm_up
from fedopt.data import Federation, union
from fedopt.engine.loop import Plan
from fedopt.engine.problem import LocalWork, Problem
from fedopt.runs.config import ClientSection, Config, ServerSection
from fedopt.tasks import Task


def _pick(table: ClientSection | ServerSection, factory: Callable[..., Any]) -> dict[str, Any]:
    return {name: getattr(table, name) for name in keywords(factory)}


def algorithm_of(config: Config) -> Callable[[], Algorithm]:
    """How the configured algorithm is built, in any process."""
    entry = ALGORITHMS[config.algorithm]
    sides: dict[str, ClientSection | ServerSection] = {"client": config.client, "server": config.server}
    client, server = (
        (table.optimizer, _pick(table, OPTIMIZERS[table.optimizer])) if table.optimizer else None
        for table in sides.values()
    )
    options = {
        k: v for side, factory in entry.options.items() for k, v in _pick(sides[side], factory).items()
    }
    return partial(build, config.algorithm, client, server, options)


def _united(open_federation: Callable[[], Federation]) -> Federation:
    federation = open_federation()
    return federation._replace(train=union(federation.train))


def problem_of(task: Task, config: Config, algorithm: Callable[[], Algorithm] | None = None) -> Problem:
    """The task with the configuration's options applied; `algorithm` replaces a registered one."""
    preparing = {name: config.data[name] for name in keywords(task.prepare)}
    options = {
        name: value for name, value in config.data.items() if name not in ("source", "manifest", *preparing)
    }
    federation: Callable[[], Federation] = partial(task.federation, config.data["source"], **options)
    loss = {name: value for name, value in config.loss.items() if name != "reduction"}
    client = config.client
    return Problem(
        federation=partial(_united, federation) if config.algorithm == "centralized" else federation,
        model=partial(task.model, **config.model),
        prepare=partial(task.prepare, **preparing) if preparing else task.prepare,
        loss=partial(task.loss, **loss) if loss else task.loss,
        metrics=task.metrics,
        algorithm=algorithm or algorithm_of(config),
        local=LocalWork(client.batch_size, client.epochs or 1, client.steps, client.drop_last),
        seed=config.seed,
        reduction=config.loss["reduction"],
        weighting=config.weighting,
        buffers=config.buffers,
        penalty=task.penalty,
        tokens=task.tokens,
        touched=task.touched,
    )


def schedule_of(table: ClientSection | ServerSection) -> Schedule:
    factory = SCHEDULES[table.schedule]
    return warm_up(factory(table.lr, **_pick(table, factory)), table.warmup)


def plan_of(config: Config, sample: int) -> Plan:
    return Plan(
        rounds=config.rounds,
        client_rate=schedule_of(config.client),
        server_rate=schedule_of(config.server),
        sample=sample,
        eval_every=config.eval.every,
        eval_last_every=config.eval.last_every,
        patience=config.patience,
    )
