"""What tables and figures share: an artifact when it is drawn, and the cells of a method on a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from matplotlib.figure import Figure

from fedopt.analysis.seeds import within_noise
from fedopt.formatting import Unit, metric_unit
from fedopt.reproduction.published import (
    CURVE_ONLY,
    METHOD_NAMES,
    OPTIMIZERS,
    PERFORMANCE_BOLD,
    SCAFFOLD,
    TASK_NAMES,
    settings,
)
from fedopt.reproduction.study import Result, Spec, Study, over_seeds
from fedopt.reproduction.tables import Entry, Table, chosen_text
from fedopt.tasks import TASKS


class Drawn(NamedTuple):
    """An artifact, ready to be written."""

    tables: tuple[Table, ...]
    figure: Figure
    notes: tuple[str, ...] = ()


def paper_unit(task: str) -> Unit:
    """The unit of a task's metric in the paper's tables: recall is printed times 100, not in per cent."""
    unit, metric = metric_unit(TASKS[task].metric), TASKS[task].metric
    if metric.startswith("recall"):
        at = metric.removeprefix("recall").strip("_@ ").removeprefix("at").strip("_")
        return unit._replace(name=f"recall@{at} (× 100)" if at else "recall (× 100)", suffix="")
    return unit


def unit_text(task: str) -> str:
    unit = paper_unit(task)
    return unit.name + unit.suffix


def entry_of(task: str, method: str, result: Result, word: str, detail: str = "") -> Entry:
    """A result in the unit of the paper's tables."""
    unit = paper_unit(task)
    remark = f"({result.remark})" if result.remark else ""
    return Entry(
        row=TASK_NAMES[task],
        column=METHOD_NAMES[method],
        ours=None if result.value is None else result.value * unit.factor,
        half=None if result.half is None else result.half * unit.factor,
        by_seed=result.by_seed,
        state=result.state,
        run=result.run,
        word=word,
        digits=unit.digits,
        unit=unit.name + unit.suffix,
        group=TASK_NAMES[task],
        higher_is_better=TASKS[task].better == "higher",
        ranked=method in OPTIMIZERS,
        detail=" ".join(part for part in (detail, remark) if part),
    )


def method_specs(study: Study, task: str, method: str) -> tuple[tuple[Spec, ...], str]:
    """The runs that stand for a method, one for each seed, and why there are none."""
    if method != SCAFFOLD:
        return study.repeats(task, method), ""
    winner = study.winner(study.sweep(task, SCAFFOLD))
    return ((), winner.state) if winner.value is None else ((winner.spec,), "")


def method_entry(study: Study, task: str, method: str) -> Entry:
    """A cell of the performance table."""
    specs, missing = method_specs(study, task, method)
    word = study.word(task)
    if specs:
        entry = entry_of(task, method, over_seeds([study.result(spec) for spec in specs]), word)
    else:
        empty = Result(study.sweep(task, method)[0], None, missing, None)
        entry = entry_of(task, method, empty, word)
    if method == SCAFFOLD:
        return replace(entry, paper_text=CURVE_ONLY, detail=chosen_text(specs[0].at) if specs else "")
    bold = method in PERFORMANCE_BOLD[task]
    return replace(entry, paper=settings(task).results[method], paper_bold=bold)


def noise_notes(study: Study, entries: Sequence[Entry]) -> tuple[str, ...]:
    """With several seeds: how they are shown, and which differences from the best they do not establish."""
    if len(study.seeds) == 1:
        return ()
    seeds = ", ".join(map(str, study.seeds))
    notes = [
        f"Runs at the paper's rates: mean ± half the 95 % interval over the seeds {seeds}. Sweeps, and "
        f"SCAFFOLD with them, have the seed {study.seeds[0]} alone."
    ]
    rows = dict.fromkeys(entry.row for entry in entries)
    return (*notes, *filter(None, (_alike(row, [e for e in entries if e.row == row]) for row in rows)))


def _alike(row: str, entries: Sequence[Entry]) -> str:
    ranked = [entry for entry in entries if entry.ranked and entry.ours is not None]
    if not ranked:
        return ""
    sign = 1 if ranked[0].higher_is_better else -1
    best = max(ranked, key=lambda entry: sign * (entry.ours or 0.0))
    others = [entry for entry in ranked if entry is not best]
    alike = [e.column for e in others if within_noise(dict(best.by_seed), dict(e.by_seed))]
    if not alike:
        return ""
    return f"{row}: the difference between {best.column}, the best, and {', '.join(alike)} is within noise."
