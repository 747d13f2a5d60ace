"""The fingerprint of a user-defined task in run.json. A resumed run must have the same.

The configuration identifies a built-in task. A user's own task has only a name, so the fingerprint records
what the name stands for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedopt.engine.problem import Problem
from fedopt.engine.worker import InitialModel, initial_model

Fingerprint = dict[str, Any]  # section -> {name: text}
_CHECKSUM = " sha256:"


def model_fingerprint(problem: Problem, initial: InitialModel, is_new: bool) -> Fingerprint:
    """Describe the trainable parameters, and type, shape and values of all other tensors.

    A factory may draw frozen values at random without the seed of the run. A new run finds such values by
    building a second module, and records no checksum for them: a resumed run uses the stored ones.
    """
    fixed = initial.fixed.describe()
    checksums = initial.fixed.checksums()
    if is_new and fixed:
        again = initial_model(problem).fixed.checksums()
        checksums = {name: value for name, value in checksums.items() if again.get(name) == value}
    return {
        "parameters": initial.parameters,
        "fixed": {
            name: text + _CHECKSUM + checksums[name] if name in checksums else text
            for name, text in fixed.items()
        },
    }


def read_fingerprint(run: Path) -> Fingerprint:
    """Read the fingerprint in run.json. It is empty for a built-in task and for runs of older versions."""
    try:
        fingerprint = json.loads((run / "run.json").read_bytes()).get("fingerprint", {})
    except (OSError, ValueError, AttributeError):  # a damaged run.json does not affect the model
        return {}
    return fingerprint if isinstance(fingerprint, dict) else {}


def find_difference(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe the first difference between two fingerprints; "" if there is none.

    Sections and checksums that are not recorded are not compared.
    """
    for section, title in (("parameters", "parameter"), ("fixed", "frozen tensor")):
        if section not in recorded:
            continue
        before, now = recorded[section], current[section]
        for name in {**before, **now}:
            text, other = str(before.get(name, "absent")), str(now.get(name, "absent"))
            kind, _, checksum = text.partition(_CHECKSUM)
            other_kind, _, other_checksum = other.partition(_CHECKSUM)
            if kind != other_kind:
                return f"{title} {name!r} of the model was {kind} and is {other_kind}"
            if checksum and other_checksum and checksum != other_checksum:
                return f"the values of {title} {name!r} of the model are different"
    return ""
