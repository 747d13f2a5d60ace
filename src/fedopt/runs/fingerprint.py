"""The fingerprint of user-defined parts in run.json: model, data, loss, metrics and algorithm. It must not
change.

The configuration identifies a built-in task or algorithm. A user's own has only a name, so the fingerprint
records what the name stands for. Data are identified by ids, sizes and a sample of the examples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedopt.algorithms import ALGORITHMS
from fedopt.data import Federation, Split
from fedopt.documents import is_intact, parse_json, read_regular_file
from fedopt.engine.initial_model import InitialModel, build_module, initial_model
from fedopt.engine.problem import Problem
from fedopt.errors import RunDirectoryError
from fedopt.models.flat import Flat
from fedopt.runs.config import Config, short_digest
from fedopt.runs.prepare import PreparedRun
from fedopt.runs.source_fingerprint import CodeReader
from fedopt.tasks import TASKS

Fingerprint = dict[str, Any]  # section -> {name: text}
_CODE = ("code", "algorithm code")
_CHECKSUM = " sha256:"
_NAMED_CLIENTS = 16  # of each split; a difference names the client
_SAMPLED_CLIENTS = 1000  # of each split, in one checksum, if reading a client is cheap
_SAMPLED_ROWS = 64  # of each client


def make_fingerprint(
    config: Config, problem: Problem, initial: InitialModel, federation: Federation, is_new: bool
) -> Fingerprint:
    """Describe the user-defined parts of a run; the result is empty if there are none.

    `is_new` is true if the run has no directory yet.
    """
    own_algorithm = own_algorithm_fingerprint(config, problem)
    if config.task in TASKS:
        return own_algorithm
    module = build_module(problem)
    is_seeded = config.init == "seed"  # otherwise the configuration has the checksum of x_0
    return {
        **_model_fingerprint(problem, module, initial, is_new, is_seeded),
        **{name: _split_fingerprint(getattr(federation, name)) for name in ("train", "test")},
        "code": _code_fingerprint(problem, module),
        **own_algorithm,
    }


def own_algorithm_fingerprint(config: Config, problem: Problem) -> Fingerprint:
    """Describe a user-defined algorithm."""
    if config.algorithm in ALGORITHMS:
        return {}
    algorithm, checksum = problem.algorithm(), CodeReader().checksum
    functions = {name: getattr(algorithm, name) for name in ("init", "client", "server")}
    vectors = {"vectors": (algorithm.sends, algorithm.returns, algorithm.keeps)}
    parts = {**functions, **vectors}
    return {"algorithm code": {f"algorithm's {name}": checksum(part) for name, part in parts.items()}}


def _code_fingerprint(problem: Problem, module: nn.Module) -> dict[str, str]:
    """Describe the functions and the layers of the model, whose tensors have other checksums."""
    checksum = CodeReader().checksum
    parts = {"loss": problem.loss, "penalty": problem.penalty, "preparation of examples": problem.prepare}
    parts |= {f"metric {name!r}": metric for name, metric in problem.metrics.items()}
    model = CodeReader(weights=False).checksum((problem.model, module))
    return {**{name: checksum(part) for name, part in parts.items()}, "model": model}


def _split_fingerprint(split: Split) -> Fingerprint:
    fingerprint = {
        "clients": len(split.ids),
        "ids": hashlib.sha256("\n".join(split.ids).encode()).hexdigest(),
        "sizes": hashlib.sha256(split.sizes.tobytes()).hexdigest(),
        "examples": {split.ids[i]: _examples_checksum(split, i) for i in _spread(split, _NAMED_CLIENTS)},
    }
    if split.labels is not None and split.labels.is_cheap:
        checksums = [_examples_checksum(split, i) for i in _spread(split, _SAMPLED_CLIENTS)]
        fingerprint["sample"] = hashlib.sha256("".join(checksums).encode()).hexdigest()
    return fingerprint


def _spread(split: Split, limit: int) -> list[int]:
    """Return up to `limit` clients at equal distances."""
    clients = len(split.ids)
    return [int(i) for i in np.unique(np.linspace(0, clients - 1, min(clients, limit)).astype(int))]


def _examples_checksum(split: Split, client: int) -> str:
    """The checksum of some examples of a client; "" if they cannot be read, which training reports."""
    try:
        arrays = split.client(client)
    except Exception:
        return ""
    digest = hashlib.sha256()
    for array in arrays:
        rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _SAMPLED_ROWS)).astype(int))
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array[rows]).tobytes())
    return digest.hexdigest()


def name_digest(runs: Sequence[PreparedRun]) -> str:
    """A hash of the user-defined parts of runs of one task, for names of directories; "" if there are none.

    It does not depend on the seeds of the runs.
    """
    parts = [own_algorithm_fingerprint(run.config, run.problem) for run in runs]
    if runs[0].config.task not in TASKS:
        config, problem = runs[0].config, replace(runs[0].problem, seed=0)
        federation = problem.federation()
        parts.append(make_fingerprint(config, problem, initial_model(problem), federation, is_new=True))
    return short_digest(json.dumps(parts, sort_keys=True)) if any(parts) else ""


def _model_fingerprint(
    problem: Problem, module: nn.Module, initial: InitialModel, is_new: bool, is_seeded: bool
) -> Fingerprint:
    """Describe the trainable parameters, and type, shape and values of all other tensors.

    A factory may draw frozen values at random without the seed of the run. A new run finds such values by
    building a second module, and records no checksum for them: a resumed run uses the stored ones. Initial
    weights have a checksum if they do not depend on the seed, because other versions of torch draw others.
    """
    flat = Flat(module, problem.buffers)
    fixed = initial.fixed.describe()
    checksums = initial.fixed.checksums()
    if is_new and fixed:
        again = flat.fixed().checksums()
        checksums = {name: value for name, value in checksums.items() if again.get(name) == value}
    weights = dict(zip(flat.names, flat.split(initial.x), strict=True)) if is_seeded else {}
    if is_new and weights:
        other = initial_model(replace(problem, seed=problem.seed ^ 1))
        others = zip(weights.items(), flat.split(other.x), strict=True)
        weights = {name: value for (name, value), unseeded in others if torch.equal(value, unseeded)}
    return {
        "parameters": initial.parameters,
        "fixed": {
            name: text + _CHECKSUM + checksums[name] if name in checksums else text
            for name, text in fixed.items()
        },
        "weights": {
            name: hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
            for name, value in weights.items()
        },
    }


def read_fingerprint(run: Path) -> Fingerprint:
    """Read the fingerprint in run.json. It is empty for a built-in task and for runs of older versions."""
    try:
        info = parse_json(read_regular_file(run / "run.json"))
        fingerprint = info.get("fingerprint", {}) if is_intact(info) else {}
    except (OSError, ValueError, AttributeError):  # a damaged run.json does not affect the model
        return {}
    return fingerprint if isinstance(fingerprint, dict) else {}


def check_fingerprint(run: Path, recorded: Fingerprint, current: Fingerprint) -> None:
    """Refuse to continue a run with another model, other data or another algorithm."""
    try:
        difference = find_difference(recorded, current)
    except (KeyError, TypeError, AttributeError) as error:  # older versions have no checksum of run.json
        raise RunDirectoryError(f"{run / 'run.json'} is damaged; restore it", path=run) from error
    if difference:
        raise RunDirectoryError(f"{run} holds another run: {difference}; choose another directory", path=run)


def find_difference(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe the first difference between two fingerprints; "" if there is none.

    Sections and checksums that are not recorded are not compared. Version 0.2.0 has other sections for code.
    """
    for section, before in recorded.items():
        now, difference = current.get(section, {}), ""
        if section in ("parameters", "fixed"):
            difference = _tensor_difference(section, before, now)
        elif section in ("train", "test"):
            difference = _split_difference(section, before, now)
        elif section == "weights":
            changed = [name for name in before if before[name] != now.get(name)]
            hint = "(call torch.manual_seed before the model is built to get the same again)"
            difference = f"the initial values of {changed[0]!r} are different {hint}" if changed else ""
        elif section in _CODE:
            changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            difference = f"the {changed[0]}, or a value that it uses, is different" if changed else ""
        if difference:
            return difference
    return ""


def _tensor_difference(section: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    title = "parameter" if section == "parameters" else "frozen tensor"
    for name in {**before, **now}:
        kind, _, checksum = before.get(name, "absent").partition(_CHECKSUM)
        other_kind, _, other_checksum = now.get(name, "absent").partition(_CHECKSUM)
        if kind != other_kind:
            return f"{title} {name!r} of the model was {kind} and is {other_kind}"
        if checksum and other_checksum and checksum != other_checksum:
            return f"the values of {title} {name!r} of the model are different"
    return ""


def _split_difference(split: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if before["clients"] != now["clients"]:
        return f"the number of {split} clients was {before['clients']} and is {now['clients']}"
    for name in ("ids", "sizes"):
        if before[name] != now[name]:
            return f"the {name} of the {split} clients are different"
    for client, checksum in before["examples"].items():
        other = now["examples"].get(client, "")
        if checksum and other and checksum != other:
            return f"the examples of {split} client {client!r} are different"
    if before.get("sample") != now.get("sample") and "sample" in before:
        return f"the examples of some {split} clients are different"
    return ""
