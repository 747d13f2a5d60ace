"""The configuration of a run: defaults from the task and the algorithm, the user's changes, all checked.

Which keys exist depends on what is selected: `server.tau` is a key of a run whose server optimizer is
adaptive and of no other. A key that would be ignored is an error, because it was set by mistake.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, VARIANTS, Entry, keywords
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.engine.sampling import SAMPLERS
from fedopt.errors import UserError, unknown
from fedopt.runs.default_rates import default_rates
from fedopt.tasks import Task

_FLOAT32 = 3e38  # rates beyond it do not exist for the vectors they scale
Positive = Annotated[float, Field(gt=0, le=_FLOAT32, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=_FLOAT32, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Side(_Section):
    """What the client's and the server's tables have in common. None: not an option of what is selected."""

    optimizer: str | None = None
    lr: Positive
    schedule: str = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0
    # optimizers
    momentum: Fraction | None = None
    fold_rate: bool | None = None
    beta1: Fraction | None = None
    beta2: Fraction | None = None
    tau: Positive | None = None
    initial_accumulator: NonNegative | None = None
    bias_correction: bool | None = None
    first_step: Count | None = None
    final_rate: Positive | None = None
    gamma: Positive | None = None
    # schedules
    decay: Positive | None = None
    decay_rounds: Count | None = None
    factor: Fraction | None = None
    window: Count | None = None
    patience: Count | None = None
    min_delta: NonNegative | None = None


class ClientSection(_Side):
    batch_size: Count
    epochs: Count | None = None  # absent where steps are given
    steps: Count | None = None
    drop_last: bool = False
    # algorithms
    option: Literal["I", "II"] | None = None
    mu: NonNegative | None = None
    epsilon: Positive | None = None
    state: Literal["reset", "average"] | None = None


class ServerSection(_Side):
    pass


class EvalSection(_Section):
    every: Count
    last_every: Count
    sample: Annotated[int, Field(ge=0)]
    final: Literal["sample", "full"]  # what is measured after the last round


class CheckpointSection(_Section):
    every: Count
    keep: Count


class Config(_Section):
    """A resolved configuration; `document()` is what `config.toml` holds."""

    task: str
    algorithm: str
    rounds: Count
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    clients_per_round: Count
    weighting: Literal["examples", "uniform", "processed", "tokens"]
    sampling: Literal["uniform", "as_run"]
    variant: Literal["as_printed", "as_run"]
    patience: Count  # rounds without a finite client before the run is given up
    buffers: Literal["refuse", "freeze"]  # what to do with a model's running statistics
    init: str  # "seed", or the checksum of the weights that the run starts from
    # The device on which clients train many at a time: other rounding, so another run. None: the plain way.
    vectorised: Literal["cpu", "cuda", "mps"] | None = None
    client: ClientSection
    server: ServerSection
    loss: dict[str, Any]  # reduction, and options of the task's loss
    data: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)  # empty for a model of the user's own
    eval: EvalSection
    checkpoint: CheckpointSection

    def document(self) -> dict[str, Any]:
        """Nested tables of plain values, without what does not apply."""
        return self.model_dump(exclude_none=True)

    def toml(self) -> str:
        return tomli_w.dumps(self.document())

    def identity(self) -> dict[str, Any]:
        """What makes a run the run it is: everything but its length."""
        document = self.document()
        del document["rounds"]
        return document

    def short_hash(self, digits: int = 6, *, ignore: Collection[str] = ()) -> str:
        """A hash of the identity without the keys in `ignore`; the name of a run's default directory."""
        identity = {key: value for key, value in self.identity().items() if key not in ignore}
        text = json.dumps(identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:digits]


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`key=value` strings as a flat mapping; values are written as in TOML, bare words are strings.

    >>> parse_settings(["client.lr=0.1", "variant=as_run", "client.drop_last=true"])
    {'client.lr': 0.1, 'variant': 'as_run', 'client.drop_last': True}
    """
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {setting!r} is not of the form key=value, for example client.lr=0.1")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
    return parsed


def resolve(
    task: Task,
    algorithm: str,
    settings: Mapping[str, Any],
    source: str = "synthetic",
    entry: Entry | None = None,
    *,
    init: str = "seed",
    vectorised: str | None = None,
) -> Config:
    """Resolve the configuration of `algorithm` on `task` with the user's `settings` (dotted key -> value).

    `entry` describes an algorithm that is not in the registry. `init` is the checksum of the initial
    weights, `vectorised` the device on which clients train many at a time.
    """
    if entry is None:
        if algorithm not in ALGORITHMS:
            raise unknown("algorithm", algorithm, ALGORITHMS)
        entry = ALGORITHMS[algorithm]
    defaults = _defaults(task, algorithm, entry, settings, source)
    defaults["init"] = init
    problems = [
        _no_such_key(key, defaults, algorithm)
        for key in settings
        if key not in defaults and not _optional(key)
    ]
    values = {**defaults, **{key: settings[key] for key in settings if key in defaults or _optional(key)}}
    if "client.steps" in settings and "client.epochs" not in settings:
        del values["client.epochs"]
    problems += _conflicts(task, algorithm, settings, defaults, values)
    try:
        config = Config.model_validate(_nested(values) | {"vectorised": vectorised})
    except ValidationError as error:
        problems += [_explain(detail) for detail in error.errors()]
    if problems:
        count = f"{len(problems)} problems: " if len(problems) > 1 else ""
        raise UserError(f"configuration: {count}{'; '.join(problems)}")
    return config


def load(text: str, where: str) -> Config:
    """The configuration that a `config.toml` holds."""
    try:
        return Config.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{where} is damaged ({first}); restore it or choose another --out") from error


def read_config(file: Path) -> Config:
    """The configuration in the file of a run directory."""
    try:
        return load(file.read_text(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is damaged ({error}); restore it or choose another --out") from error


def _optional(key: str) -> bool:
    return key == "client.steps"  # has no default: it replaces client.epochs


def _defaults(
    task: Task, algorithm: str, entry: Entry, settings: Mapping[str, Any], source: str
) -> dict[str, Any]:
    """All keys that apply to what is selected, with their defaults."""
    paper = task.paper
    client = _choice(settings, "client.optimizer", entry.clients, algorithm) if entry.clients else None
    server = _choice(settings, "server.optimizer", entry.servers, algorithm) if entry.servers else None
    variant = _choice(settings, "variant", tuple(VARIANTS))
    rates = default_rates(task, algorithm, client or "sgd", server or "sgd")
    one_client = algorithm == "centralized"
    values: dict[str, Any] = {
        "task": task.name,
        "algorithm": algorithm,
        "rounds": 100 if one_client else paper.rounds if paper else 100,
        "seed": 0,
        "clients_per_round": 1
        if one_client
        else paper.clients_per_round
        if paper
        else task.clients_per_round,
        "weighting": "examples",
        "sampling": "uniform",
        "variant": variant,
        "patience": 5,
        "buffers": "refuse",
        "init": "seed",
        "client.lr": rates.client_lr,
        "client.batch_size": paper.batch_size if paper else 20,
        "client.epochs": 1,
        "client.drop_last": False,
        "server.lr": rates.server_lr,
        "loss.reduction": task.reduction,
        "data.source": source,
        **_store_identity(source),
        "eval.every": 50,
        "eval.last_every": 10,
        "eval.sample": task.eval_sample,
        "eval.final": "full" if task.full_test_at_end and source != "synthetic" else "sample",
        "checkpoint.every": 10,
        "checkpoint.keep": 2,
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
            options |= keywords(entry.options[side])
        schedule = _choice(settings, f"{side}.schedule", tuple(SCHEDULES))
        options |= {"schedule": schedule, "warmup": 0} | keywords(SCHEDULES[schedule])
        values |= {f"{side}.{name}": value for name, value in options.items()}
    data = (("data", task.federation), ("data", task.prepare))
    for table, function in (*data, ("model", task.model), ("loss", task.loss)):
        values |= {f"{table}.{name}": value for name, value in keywords(function).items()}
    return values


def _square(tau: Any) -> float:
    """tau^2; of a tau that is no number, which is refused later, nothing."""
    try:
        return float(tau) * float(tau)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _store_identity(source: str) -> dict[str, str]:
    """The checksum of a store's manifest: a run is not continued on other data in the same place."""
    manifest = Path(source) / "manifest.json"
    if not manifest.is_file():
        return {}
    return {"data.manifest": "sha256:" + hashlib.sha256(manifest.read_bytes()).hexdigest()}


def _choice(
    settings: Mapping[str, Any], key: str, allowed: tuple[str, ...], algorithm: str | None = None
) -> str:
    """The selected name for `key`, the first allowed one by default."""
    name = str(settings.get(key, allowed[0]))
    if name in allowed:
        return name
    if algorithm and name in OPTIMIZERS:
        raise UserError(
            f"{algorithm} does not take {key}={name}; allowed: {', '.join(allowed)} "
            "(--algorithm fedopt combines any with any)"
        )
    raise unknown(key, name, allowed)


def _conflicts(
    task: Task,
    algorithm: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    values: Mapping[str, Any],
) -> list[str]:
    problems = []
    if "client.steps" in settings and "client.epochs" in settings:
        problems.append("client.steps and client.epochs exclude each other; set one")
    if values["weighting"] == "tokens" and task.tokens is None:
        problems.append(
            f"weighting=tokens needs a text task; {task.name} allows examples, uniform, processed"
        )
    if algorithm == "centralized" and values["clients_per_round"] != 1:
        problems.append("centralized has one client, the union of all; leave clients_per_round at 1")
    for key in settings:
        if key in ("task", "algorithm", "init", "data.manifest"):
            problems.append(f"{key!r} is chosen by the command itself, not by a setting")
        if (
            key.startswith(("data.", "model.", "loss."))
            and key in defaults
            and type(values[key]) is not type(defaults[key])
        ):
            problems.append(f"{key} must be of the kind of {defaults[key]!r}, got {values[key]!r}")
        elif key.startswith(("data.", "model.")) and isinstance(settings[key], int | float):
            if not 0 <= settings[key] < float("inf"):
                problems.append(f"{key} must be 0 or more and finite, got {settings[key]!r}")
    for side in ("client", "server"):
        if f"{side}.first_step" in settings and values.get(f"{side}.bias_correction") is False:
            problems.append(f"{side}.first_step would be ignored without {side}.bias_correction=true")
    for key, allowed in {"loss.reduction": ("mean", "sum"), **task.choices}.items():
        if values[key] not in allowed:
            problems.append(str(unknown(key, str(values[key]), allowed)))
    return problems


def _no_such_key(key: str, defaults: Mapping[str, Any], algorithm: str) -> str:
    side, _, name = key.partition(".")
    if (
        side in ("client", "server")
        and name in (ClientSection if side == "client" else ServerSection).model_fields
    ):
        optimizer, schedule = (
            defaults.get(f"{side}.{part}", "its own") for part in ("optimizer", "schedule")
        )
        chosen = f"{side} optimizer {optimizer}, schedule {schedule}"
        return f"{key!r} is not an option of {algorithm} with {chosen}, and would be ignored"
    near = difflib.get_close_matches(key, [*defaults, "client.steps"], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else "; 'fedopt run ... --show-config' lists the keys"
    return f"there is no key {key!r}{hint}"


def _explain(detail: Any) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{key}: {message}, got {detail['input']!r}"


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        table, _, name = key.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[name] = value
    return nested


assert set(SAMPLERS) == {"uniform", "as_run"}  # the literals of Config.sampling
