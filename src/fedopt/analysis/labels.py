"""Labels of configurations: the algorithm and the settings that distinguish it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedopt.formatting import format_setting
from fedopt.runs.records import RunRecord, config_differences

# Keys that may differ between runs of one configuration.
GROUPED_KEYS = ("seed", "rounds", "eval.every", "eval.last_every")
MAX_SETTINGS = 3  # in a label: the two learning rates and tau


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
