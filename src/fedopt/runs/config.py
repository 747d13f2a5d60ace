"""The configuration of a run, as stored in config.toml.

The keys of [client] and [server] depend on what is selected. Besides the fields below, each section has the
keyword arguments of the selected optimizer, schedule and algorithm: `server.tau` is a key of a run with an
adaptive server optimizer. The models are generated from the signatures of these functions.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from annotated_types import Ge, Lt
from pydantic import BaseModel, ConfigDict, Field, create_model

from fedopt.algorithms import ALGORITHMS, OPTIMIZERS, AlgorithmEntry, keywords
from fedopt.algorithms.options import Count, Positive
from fedopt.algorithms.schedules import SCHEDULES
from fedopt.documents import parse_toml, read_regular_file
from fedopt.errors import RunDirectoryError

Index = Annotated[int, Ge(0)]
_CONSTANT_FREQUENCY = {"every": 50, "last_every": 10}
_ADDED_LATER = {"padding": "repeat"}  # options of models, with what earlier versions did


class Section(BaseModel):
    """A table of the configuration. Unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ServerSection(Section):
    optimizer: str | None = None  # None: the algorithm has its own update rule
    lr: Positive
    schedule: str = "constant"
    warmup: Index = 0


class ClientSection(ServerSection):
    batch_size: Count
    epochs: Count | None = None  # None if steps are given
    steps: Count | None = None
    drop_last: bool = False


class EvalSection(Section):
    every: Count
    last_every: Count
    sample: Index
    final: Literal["sample", "full"]  # the test examples that are used after the last round


class CheckpointSection(Section):
    every: Count
    keep: Count


class StopSection(Section):
    metric: str = "loss"  # of the evaluations during training
    patience: Index = 0  # evaluations without improvement after which the run ends; 0: never
    min_delta: Annotated[float, Ge(0)] = 0.0  # an improvement is larger than this


class Config(Section):
    """A resolved configuration. Build it with `resolve`, `read_config` or `from_document`."""

    task: str
    algorithm: str
    rounds: Count
    seed: Annotated[int, Ge(0), Lt(2**32)]
    clients_per_round: Count
    weighting: Literal["examples", "uniform", "processed", "tokens"]
    sampling: Literal["uniform", "as_run"]
    variant: Literal["as_printed", "as_run"]
    patience: Count  # maximum number of consecutive rounds without a finite client
    buffers: Literal["refuse", "freeze", "average", "local"]  # how to treat a model with running statistics
    init: str  # "seed", or the checksum of the initial weights
    # Device on which clients train many at a time, or "compiled" for compiled steps on the CPU. It changes
    # the rounding, so it is part of the identity.
    vectorised: Literal["cpu", "cuda", "mps", "compiled"] | None = None
    client: ClientSection
    server: ServerSection
    loss: dict[str, Any]  # reduction, and options of the task's loss
    data: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)  # empty for a user-defined model
    eval: EvalSection
    checkpoint: CheckpointSection
    stop: StopSection = Field(default_factory=StopSection)  # early stopping

    def __reduce__(self) -> tuple[Any, ...]:  # generated classes cannot be pickled by name
        return from_document, (self.document(),)

    def document(self) -> dict[str, Any]:
        """Nested tables of plain values, without keys that do not apply."""
        return self.model_dump(exclude_none=True)

    def toml(self) -> str:
        return tomli_w.dumps(self.document())

    def identity(self) -> dict[str, Any]:
        """All keys that influence training or the meaning of its numbers.

        `rounds` and `stop` decide only how long a run is, `eval.every` and `eval.last_every` only how often
        it is evaluated. The latter have constant values here, and options that were added later are left out
        if they have their default, so that directories and hashes of earlier versions are valid.
        """
        document = {key: value for key, value in self.document().items() if key not in ("rounds", "stop")}
        model = {name: value for name, value in self.model.items() if _ADDED_LATER.get(name) != value}
        return document | {"model": model, "eval": document["eval"] | _CONSTANT_FREQUENCY}

    def short_hash(self, digits: int = 6, *, ignore: Collection[str] = ()) -> str:
        """A hash of the identity without the keys in `ignore`. It has 64 digits."""
        identity = {key: value for key, value in self.identity().items() if key not in ignore}
        return short_digest(json.dumps(identity, sort_keys=True), digits)


def short_digest(text: str, digits: int = 6) -> str:
    """The first digits of the SHA-256 checksum of a text, for names of directories."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


class OwnClientSection(ClientSection):
    """The client of a user-defined algorithm. Its options are known only where its code is imported."""

    model_config = ConfigDict(extra="allow")


def from_document(document: Mapping[str, Any], algorithm: AlgorithmEntry | None = None) -> Config:
    """Validate nested tables of plain values. Raises pydantic's ValidationError.

    `algorithm` describes the options of a user-defined algorithm. Without it, all options are accepted.
    """
    algorithm = algorithm or _lookup(ALGORITHMS, document, "algorithm")
    client_section = OwnClientSection if algorithm is None else ClientSection
    sections: dict[str, Any] = {}
    for side, section in (("client", client_section), ("server", ServerSection)):
        table = document.get(side)
        factories = (
            _lookup(OPTIMIZERS, table, "optimizer"),
            _lookup(SCHEDULES, table, "schedule"),
            algorithm.options.get(side) if algorithm else None,
        )
        sections[side] = _add_options(section, tuple(filter(None, factories)))
    return _config_model(**sections).model_validate(document)


def option_names(side: str) -> set[str]:
    """The options of all registered optimizers, schedules and algorithms for "client" or "server"."""
    factories = [*OPTIMIZERS.values(), *SCHEDULES.values()]
    factories += [entry.options[side] for entry in ALGORITHMS.values() if side in entry.options]
    return {name for factory in factories for name in keywords(factory)}


_S = TypeVar("_S", bound=Section)
_T = TypeVar("_T")


def _lookup(registry: Mapping[str, _T], table: object, key: str) -> _T | None:
    """The registered object that a table of unchecked values selects, if any."""
    name = table.get(key) if isinstance(table, Mapping) else None
    return registry.get(name) if isinstance(name, str) else None


@lru_cache
def _add_options(section: type[_S], factories: tuple[Callable[..., Any], ...]) -> type[_S]:
    """A section with the keyword arguments of `factories` as further fields."""
    fields: dict[str, Any] = {}
    for factory in factories:
        for parameter in inspect.signature(factory, eval_str=True).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                annotated = parameter.annotation is not parameter.empty
                fields[parameter.name] = (parameter.annotation | None if annotated else Any, None)
    return create_model(section.__name__, __base__=section, **fields)


@lru_cache
def _config_model(client: type[ClientSection], server: type[ServerSection]) -> type[Config]:
    return create_model("Config", __base__=Config, client=(client, ...), server=(server, ...))


def read_config(file: Path) -> Config:
    """Read the config.toml of a run directory."""
    try:
        return from_document(parse_toml(read_regular_file(file)))
    except OSError as error:
        raise RunDirectoryError(f"cannot read {file}: {error.strerror}", path=file.parent) from error
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise RunDirectoryError(
            f"{file} is damaged ({reason}); restore it or choose another directory", path=file.parent
        ) from error
