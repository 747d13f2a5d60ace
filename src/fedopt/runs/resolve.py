"""Resolve a configuration: defaults of the task and the algorithm, the user's settings, all checks.

A key that would be ignored is an error, because it was set by mistake. All problems are reported together.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from pydantic import ValidationError

from fedopt.algorithms import (
    OPTIMIZERS,
    VARIANTS,
    AlgorithmChoice,
    AlgorithmEntry,
    algorithm_name,
    find_algorithm,
    keywords,
)
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.data.store.stored import manifest_checksum
from fedopt.documents import parse_toml
from fedopt.engine.evaluate import LAST_INTERVAL, LONG_INTERVAL, default_interval
from fedopt.errors import ConfigError, unknown
from fedopt.formatting import shorten
from fedopt.runs.config import Config, from_document, option_names
from fedopt.runs.default_rates import default_rates
from fedopt.tasks import Task

_NO_DEFAULT = ("client.steps",)  # replaces client.epochs
_NOT_SETTINGS = ("task", "algorithm", "init", "data.source", "data.manifest")
# Names of keys in the paper and in PyTorch, and our names.
_SYNONYMS = {"learning_rate": "lr", "eta": "lr", "eta_l": "lr", "eps": "tau", "epsilon": "tau", "K": "steps"}
_KINDS = {bool: "true or false", int: "an integer", float: "a number with a decimal point", str: "a string"}

Problems = list[tuple[str, str]]  # key and message


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` strings. Values are written as in TOML; bare words are strings.

    >>> parse_settings(["client.lr=0.1", "variant=as_run", "client.drop_last=true"])
    {'client.lr': 0.1, 'variant': 'as_run', 'client.drop_last': True}
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {setting!r} is not of the form key=value, for example client.lr=0.1", keys=(setting,)
            )
        try:
            parsed[key.strip()] = parse_toml(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
        except ValueError as error:
            raise ConfigError(f"--set {key.strip()}: {error}", keys=(key.strip(),)) from error
    return parsed


def resolve(
    task: Task,
    algorithm: AlgorithmChoice,
    settings: Mapping[str, Any],
    source: str = "synthetic",
    *,
    init: str = "seed",
    vectorised: str | None = None,
) -> Config:
    """Resolve the configuration of `algorithm` on `task` with the user's `settings` (dotted key -> value).

    `init` is the checksum of the initial weights, `vectorised` the device on which clients train many at a
    time, or "compiled".
    """
    entry, algorithm = find_algorithm(algorithm), algorithm_name(algorithm)
    defaults = _defaults(task, algorithm, entry, settings, source) | {"init": init}
    known = {key: value for key, value in settings.items() if key in defaults or key in _NO_DEFAULT}
    problems = [
        (key, _nested_key(key, value) or _unknown_key(key, defaults, algorithm))
        for key, value in settings.items()
        if key not in known
    ]
    values = {**defaults, **known, "vectorised": vectorised}
    if "client.steps" in settings and "client.epochs" not in settings:
        del values["client.epochs"]
    problems += _conflicts(task, algorithm, settings, values)
    problems += _task_option_problems(task, settings, defaults, values)
    problems += [
        (key, f"{key} is not valid UTF-8: {value!r}") for key, value in values.items() if _is_not_utf8(value)
    ]
    try:
        config = from_document(_nested(values), entry)
    except ValidationError as error:
        problems += [_explain(detail) for detail in error.errors()]
    if problems:
        count = f"{len(problems)} problems: " if len(problems) > 1 else ""
        messages = "; ".join(message for _, message in problems)
        raise ConfigError(f"configuration: {count}{messages}", keys=dict(problems))
    return config


def _is_not_utf8(value: object) -> bool:
    """Whether a value cannot be written to config.toml, for example the name of a directory."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return True
    return False


def _defaults(
    task: Task, algorithm: str, entry: AlgorithmEntry, settings: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """All keys that apply to the selection, with their defaults."""
    known, is_centralized = task.settings, algorithm == "centralized"
    client = _choice(settings, "client.optimizer", entry.clients, algorithm) if entry.clients else None
    server = _choice(settings, "server.optimizer", entry.servers, algorithm) if entry.servers else None
    variant = _choice(settings, "variant", tuple(VARIANTS))
    rates = default_rates(task, algorithm, client or "sgd", server or "sgd")
    rounds, cohort = (known.rounds, known.clients_per_round) if known else (100, task.clients_per_round)
    values: dict[str, Any] = {
        "task": task.name,
        "algorithm": algorithm,
        "rounds": 100 if is_centralized else rounds,
        "seed": 0,
        "clients_per_round": 1 if is_centralized else cohort,
        "weighting": "examples",
        "sampling": "uniform",
        "variant": variant,
        "patience": 5,
        "buffers": "refuse",
        "client.lr": rates.client_lr,
        "client.batch_size": known.batch_size if known else 20,
        "client.epochs": 1,
        "client.drop_last": False,
        "server.lr": rates.server_lr,
        "loss.reduction": task.reduction,
        "data.source": source,
        **_manifest_checksum(source),
        "eval.every": _default_interval(settings.get("rounds", 100 if is_centralized else rounds)),
        "eval.last_every": LAST_INTERVAL,
        "eval.sample": task.eval_sample,
        "eval.final": "full" if task.full_test_at_end and source != "synthetic" else "sample",
        "checkpoint.every": 10,
        "checkpoint.keep": 2,
        "stop.metric": task.metric,
        "stop.patience": 0,
        "stop.min_delta": 0.0,
    }
    for side, optimizer in (("client", client), ("server", server)):
        options: dict[str, Any] = {}
        if optimizer is not None:
            options = {"optimizer": optimizer} | keywords(OPTIMIZERS[optimizer])
        if side == "server" and optimizer is not None:
            options |= VARIANTS[variant].get(optimizer, {})
            if "tau" in options and rates.tau is not None:
                options["tau"] = rates.tau
        if options.get("initial_accumulator", 0.0) is None:  # v_{-1} = tau^2
            options["initial_accumulator"] = _square(settings.get(f"{side}.tau", options["tau"]))
        if side in entry.options:
            own = keywords(entry.options[side])
            _check_option_names(side, own, values, algorithm)
            options |= own
        schedule = _choice(settings, f"{side}.schedule", tuple(SCHEDULES))
        options |= {"schedule": schedule, "warmup": 0} | keywords(SCHEDULES[schedule])
        values |= {f"{side}.{name}": value for name, value in options.items()}
    for table, function in (
        ("data", task.federation),
        ("data", task.prepare),
        ("model", task.model),
        ("loss", task.loss),
    ):
        values |= {f"{table}.{name}": value for name, value in keywords(function).items()}
    return values


def _default_interval(rounds: Any) -> int:
    """The default of eval.every. An invalid number of rounds is reported later."""
    return default_interval(rounds) if isinstance(rounds, int) and rounds >= 1 else LONG_INTERVAL


def _check_option_names(
    side: str, options: Mapping[str, Any], values: Mapping[str, Any], algorithm: str
) -> None:
    """Refuse an argument of a user-defined algorithm whose name is that of another key."""
    reserved = {*values, *(f"{side}.{name}" for name in ("steps", "optimizer", "schedule", "warmup"))}
    taken = [name for name in options if f"{side}.{name}" in reserved]
    if taken:
        raise ConfigError(
            f"the argument {taken[0]!r} of algorithm {algorithm!r} has the name of another key; rename the "
            "argument",
            keys=(f"{side}.{taken[0]}",),
        )


def _square(tau: Any) -> float:
    """tau^2, or 0 for an invalid tau, which is reported later."""
    try:
        square = float(tau) * float(tau)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return square if isfinite(square) else 0.0


def _manifest_checksum(source: str) -> dict[str, str]:
    """The checksum of a store's manifest, so that a run is not resumed on other data in the same place."""
    checksum = manifest_checksum(source)
    return {} if checksum is None else {"data.manifest": checksum}


def _choice(
    settings: Mapping[str, Any], key: str, allowed: tuple[str, ...], algorithm: str | None = None
) -> str:
    """The selected name for `key`; the default is the first allowed one."""
    name = str(settings.get(key, allowed[0]))
    if name in allowed:
        return name
    if algorithm and name in OPTIMIZERS:
        raise ConfigError(
            f"{algorithm} does not take {key}={name}; allowed: {', '.join(allowed)} "
            "(the algorithm fedopt combines any with any)",
            keys=(key,),
        )
    raise unknown(key, name, allowed)


def _conflicts(
    task: Task, algorithm: str, settings: Mapping[str, Any], values: Mapping[str, Any]
) -> Problems:
    """Keys that contradict each other or the selection."""
    problems: Problems = [
        (key, f"{key!r} is chosen by the command itself, not by a setting")
        for key in _NOT_SETTINGS
        if key in settings and key in values
    ]
    if "client.steps" in settings and "client.epochs" in settings:
        problems.append(("client.steps", "client.steps and client.epochs exclude each other; set one"))
    if values["weighting"] == "tokens" and task.tokens is None:
        message = f"weighting=tokens needs a text task; {task.name} allows examples, uniform, processed"
        problems.append(("weighting", message))
    if algorithm == "centralized" and values["clients_per_round"] != 1:
        message = "centralized has one client, the union of all; leave clients_per_round at 1"
        problems.append(("clients_per_round", message))
    for side in ("client", "server"):
        if f"{side}.first_step" in settings and values.get(f"{side}.bias_correction") is False:
            message = f"{side}.first_step would be ignored without {side}.bias_correction=true"
            problems.append((f"{side}.first_step", message))
    if values["stop.patience"] == 0:
        for key in ("stop.metric", "stop.min_delta"):
            if key in settings:
                problems.append((key, f"{key} would be ignored without stop.patience"))
    choices = {"loss.reduction": ("mean", "sum"), "stop.metric": ("loss", *task.metrics), **task.choices}
    for key, allowed in choices.items():
        if values[key] not in allowed:
            problems.append((key, str(unknown(key, str(values[key]), allowed))))
    return problems


def _task_option_problems(
    task: Task, settings: Mapping[str, Any], defaults: Mapping[str, Any], values: Mapping[str, Any]
) -> Problems:
    """Options of the task's functions must have the type of their defaults and must not be negative."""
    problems: Problems = []
    for key in settings:
        if not key.startswith(("data.", "model.", "loss.")) or key not in defaults:
            continue
        value, default = values[key], defaults[key]
        if type(value) is not type(default):
            kind = _KINDS.get(type(default), f"a {type(default).__name__}")
            example = str(default).lower() if isinstance(default, bool) else repr(default)
            problems.append((key, f"{key} must be {kind}, for example {example}, got {value!r}"))
        elif isinstance(value, int | float) and not key.startswith("loss.") and not 0 <= value < float("inf"):
            problems.append((key, f"{key} must be 0 or more and finite, got {value!r}"))
    return problems


def _nested_key(key: str, value: Any) -> str:
    """Explain that a section must be written as dotted keys; "" if the value is not a section."""
    if not isinstance(value, Mapping) or not value:
        return ""
    return f"{key!r} is a mapping; write dotted keys, such as '{key}.{next(iter(value))}'"


def _unknown_key(key: str, defaults: Mapping[str, Any], algorithm: str) -> str:
    side, _, name = key.partition(".")
    if side in ("client", "server") and name in option_names(side):
        optimizer, schedule = (
            defaults.get(f"{side}.{part}", "its own") for part in ("optimizer", "schedule")
        )
        selection = f"{side} optimizer {optimizer}, schedule {schedule}"
        return f"{key!r} is not an option of {algorithm} with {selection}, and would be ignored"
    near = " or ".join(map(repr, _closest_keys(key, [*defaults, *_NO_DEFAULT])))
    hint = f" (did you mean {near}?)" if near else "; 'fedopt run ... --show-config' lists the keys"
    return f"there is no key {key!r}{hint}"


def _closest_keys(key: str, applicable: Sequence[str]) -> list[str]:
    """The keys that were probably meant: with another name or a section, one that starts so, a similar one.

    Keys that do not apply to the selection are considered too, because a wrong hint would be worse.
    """
    section, _, name = key.rpartition(".")
    name = _SYNONYMS.get(name, name)
    same = [f"{part}.{name}" for part in ([section] if section else ("client", "server"))]
    if found := [other for other in same if other in applicable]:
        return found
    longer = [other for other in applicable if other.startswith(f"{key}_")]
    every = [f"{side}.{option}" for side in ("client", "server") for option in sorted(option_names(side))]
    return longer[:1] or difflib.get_close_matches(key, [*applicable, *every], n=1)


def _explain(detail: Any) -> tuple[str, str]:
    key = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return key, f"{key}: {message}, got {shorten(repr(detail['input']))}"


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        table, _, name = key.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[name] = value
    return nested
