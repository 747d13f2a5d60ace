"""Several seeds of one configuration: groups, their states, and labels that distinguish configurations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fedopt.errors import ConfigError
from fedopt.formatting import format_setting, shorten
from fedopt.runs.records import RunRecord, config_differences, flatten

# Keys that may differ between runs of one configuration.
GROUPED_KEYS = ("seed", "rounds", "eval.every", "eval.last_every")
MAX_SETTINGS = 3  # in a label: the two learning rates and tau
MAX_SEEDS = 1000  # of one command
FAILED = ("diverged", "failed")
INCOMPLETE = (*FAILED, "pruned", "unfinished")  # states of runs that are not done, worst first


class SeedGroup(NamedTuple):
    """The runs of one configuration, sorted by seed."""

    label: str
    records: tuple[RunRecord, ...]

    @property
    def seeds(self) -> list[int]:
        return [run_seed(record) for record in self.records]

    @property
    def state(self) -> str:
        """The worst state of the runs; "" if all are done."""
        states = {run_state(record) for record in self.records}
        return next((state for state in INCOMPLETE if state in states), "")

    @property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs that enter means: those that are done, or all if none is."""
        return tuple(record for record in self.records if record.status == "done") or self.records


def parse_seeds(text: str) -> list[int]:
    """Parse the value of `--seeds`: a range as in Python, or a list.

    Args:
        text: the value.

    Returns:
        The seeds.

    Examples:
        >>> parse_seeds("0:5"), parse_seeds("3,5,8")
        ([0, 1, 2, 3, 4], [3, 5, 8])
    """
    seeds: Sequence[int] = ()
    problem = ""
    with suppress(ValueError):
        if ":" in text:
            first, stop = (int(part) for part in text.split(":"))
            seeds = range(first, stop)
        else:
            seeds = [int(part) for part in text.split(",")]
    if not seeds:
        problem = "has no seeds; write a range, such as 0:5 for the seeds 0 to 4, or a list, such as 3,5,8"
    elif len(seeds) > MAX_SEEDS:
        problem = f"has {len(seeds):,} seeds; allowed: 1 to {MAX_SEEDS}"
    elif invalid := [seed for seed in seeds if not 0 <= seed < 2**32]:
        problem = f"has the seed {invalid[0]}; allowed: 0 to {2**32 - 1}"
    elif len(set(seeds)) < len(seeds):
        problem = "has a seed twice; list each seed once"
    if problem:
        raise ConfigError(f"--seeds {shorten(repr(text))} {problem}", keys=["seeds"])
    return list(seeds)


def group_seeds(records: Sequence[RunRecord]) -> list[SeedGroup]:
    """Group runs by configuration, ignoring seed and rounds, in order of first appearance.

    A repeated seed starts another group, so that no seed counts twice in a mean.
    """
    groups: dict[tuple[str, int], dict[int, RunRecord]] = {}
    for record in records:
        configuration, repetition, seed = configuration_key(record), 0, run_seed(record)
        while seed in groups.get((configuration, repetition), {}):
            repetition += 1
        groups.setdefault((configuration, repetition), {})[seed] = record
    members = [tuple(runs[seed] for seed in sorted(runs)) for runs in groups.values()]
    labels = configuration_labels([runs[0] for runs in members])
    return [SeedGroup(label, runs) for label, runs in zip(labels, members, strict=True)]


def run_seed(record: RunRecord) -> int:
    """Return the seed of a run, 0 if it is not recorded."""
    seed = record.config.get("seed", record.info.get("seed"))
    return seed if isinstance(seed, int) else 0


def run_state(record: RunRecord) -> str:
    """Return "" for a run that is done, else diverged, failed, pruned or unfinished.

    Runs that are running, were interrupted or killed are unfinished.
    """
    if record.status == "done":
        return ""
    return record.status if record.status in INCOMPLETE else "unfinished"


def configuration_key(record: RunRecord) -> str:
    """Return a string that is equal for runs that differ only in seed and rounds."""
    settings = {key: value for key, value in flatten(record.config).items() if key not in GROUPED_KEYS}
    identity = [record.info["task"], record.label, record.data, settings]
    return json.dumps(identity, sort_keys=True, default=str)


def differing_settings(records: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return the settings in which configurations differ, with one value per run.

    The seed, the number of rounds and settings implied by others are left out.
    """
    differences = config_differences(records)
    if "server.tau" in differences:  # v_{-1} = tau^2 follows from tau
        differences.pop("server.initial_accumulator", None)
    return {key: values for key, values in differences.items() if key not in GROUPED_KEYS}


def configuration_labels(records: Sequence[RunRecord]) -> list[str]:
    """Return a short, unique label for each configuration, given one run of each.

    The label is the algorithm. Configurations of one algorithm are distinguished by their data, by up to
    three settings, by the directory name, or by a number, in this order.
    """
    several_data = len({record.data for record in records}) > 1
    names = [f"{record.label} on {record.data}" if several_data else record.label for record in records]
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        same = [index for index, other in enumerate(names) if other == name]
        settings = differing_settings([records[index] for index in same])
        for column, index in enumerate(same):
            suffix = ", ".join(f"{key} {format_setting(values[column])}" for key, values in settings.items())
            if not 1 <= len(settings) <= MAX_SETTINGS:
                suffix = records[index].path.resolve().name
            labels[index] = f"{name} ({suffix})"
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: index + 1].count(label)}"
        for index, label in enumerate(labels)
    ]
