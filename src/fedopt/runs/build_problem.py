"""Build the problem and the plan of a run from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fedopt.algorithms import OPTIMIZERS, Algorithm, AlgorithmChoice, build, find_algorithm, keywords
from fedopt.algorithms.schedules import SCHEDULES, Schedule, warm_up
from fedopt.data import Federation, union
from fedopt.engine.loop import TrainingPlan
from fedopt.engine.problem import LocalWork, Problem
from fedopt.engine.running_statistics import POLICIES, track_statistics
from fedopt.runs.config import ClientSection, Config, ServerSection
from fedopt.tasks import Task


def build_problem(task: Task, config: Config, algorithm: AlgorithmChoice | None = None) -> Problem:
    """Apply the options of the configuration to a task and to an algorithm, by default the configured one."""
    prepare_options = {name: config.data[name] for name in keywords(task.prepare)}
    not_options = ("source", "manifest", *prepare_options)
    data_options = {name: value for name, value in config.data.items() if name not in not_options}
    federation: Callable[[], Federation] = partial(task.federation, config.data["source"], **data_options)
    loss_options = {name: value for name, value in config.loss.items() if name != "reduction"}
    build_algorithm = _configured_algorithm(config, config.algorithm if algorithm is None else algorithm)
    if config.buffers in POLICIES:
        build_algorithm = partial(track_statistics, config.buffers, build_algorithm)
    client = config.client
    return Problem(
        federation=partial(_union, federation) if config.algorithm == "centralized" else federation,
        model=partial(task.model, **config.model),
        prepare=partial(task.prepare, **prepare_options) if prepare_options else task.prepare,
        loss=partial(task.loss, **loss_options) if loss_options else task.loss,
        metrics=task.metrics,
        algorithm=build_algorithm,
        local=LocalWork(client.batch_size, client.epochs or 1, client.steps, client.drop_last),
        seed=config.seed,
        reduction=config.loss["reduction"],
        weighting=config.weighting,
        buffers=config.buffers,
        penalty=task.penalty,
        tokens=task.tokens,
        touched=task.touched,
    )


def build_plan(config: Config, sample: int) -> TrainingPlan:
    """Build the plan of the training loop; evaluations use `sample` examples."""
    return TrainingPlan(
        rounds=config.rounds,
        client_rate=_schedule(config.client),
        server_rate=_schedule(config.server),
        sample=sample,
        eval_every=config.eval.every,
        eval_last_every=config.eval.last_every,
        patience=config.patience,
    )


def _configured_algorithm(config: Config, algorithm: AlgorithmChoice) -> Callable[[], Algorithm]:
    """A function that builds the algorithm with the configured options, in any process."""
    sections: dict[str, ClientSection | ServerSection] = {"client": config.client, "server": config.server}
    client, server = (
        (section.optimizer, _options(section, OPTIMIZERS[section.optimizer])) if section.optimizer else None
        for section in sections.values()
    )
    options: dict[str, Any] = {}
    for side, factory in find_algorithm(algorithm).options.items():
        options |= _options(sections[side], factory)
    return partial(build, algorithm, client, server, options)


def _options(section: ClientSection | ServerSection, factory: Callable[..., Any]) -> dict[str, Any]:
    return {name: getattr(section, name, default) for name, default in keywords(factory).items()}


def _schedule(section: ClientSection | ServerSection) -> Schedule:
    factory = SCHEDULES[section.schedule]
    return warm_up(factory(section.lr, **_options(section, factory)), section.warmup)


def _union(open_federation: Callable[[], Federation]) -> Federation:
    federation = open_federation()
    return federation._replace(train=union(federation.train))
