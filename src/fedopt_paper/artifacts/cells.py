"""Content of an artifact, and the table cells that several artifacts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedopt.formatting import Unit, metric_unit
from fedopt.reports import is_noise, paired_difference
from fedopt.tasks import TASKS
from fedopt_paper.comparison import ComparisonCell, ComparisonTable
from fedopt_paper.data_sources import SYNTHETIC
from fedopt_paper.plan import RunPlan
from fedopt_paper.plotting import draw_comparison
from fedopt_paper.published import METHOD_NAMES, OPTIMIZERS, TASK_NAMES
from fedopt_paper.results import RunValue

NO_NUMBERS = "The paper shows this as a figure without numbers, so there are no differences."


class ArtifactContent(NamedTuple):
    """The tables, the figure and the notes of an artifact."""

    tables: tuple[ComparisonTable, ...]
    figure: Figure
    notes: tuple[str, ...] = ()


def comparison_content(
    plan: RunPlan, table: ComparisonTable, title: str, notes: tuple[str, ...] = ()
) -> ArtifactContent:
    """Build the content of one table of runs with a figure of its numbers."""
    table = limit_claims(plan, table)
    figure = draw_comparison(table, title + plan.title_suffix)
    return ArtifactContent((table,), figure, (*notes, *claim_notes(plan)))


def limit_claims(plan: RunPlan, table: ComparisonTable) -> ComparisonTable:
    """Remove differences and bold where they mean nothing.

    Differences need the paper's rounds and real data. Bold needs a scale whose numbers have a meaning.
    """
    scale = plan.scale
    cells = [
        replace(
            cell,
            comparable=scale.is_comparable and cell.label != SYNTHETIC,
            ours_bold=cell.ours_bold and scale.has_meaning,
        )
        for cell in table.cells
    ]
    return replace(table, cells=tuple(cells))


def claim_notes(plan: RunPlan) -> tuple[str, ...]:
    """Explain why differences or bold are missing."""
    if not plan.scale.has_meaning:
        return ("At this scale, differences from the paper are not shown, and no number is bold.",)
    if not plan.scale.is_comparable:
        return ("Differences from the paper are not shown: the runs have fewer rounds than the paper's.",)
    if any(plan.label(task) == SYNTHETIC for task in plan.tasks):
        return ("Differences from the paper are not shown for synthetic data.",)
    return ()


def paper_unit(task: str) -> Unit:
    """Return the unit of a task's metric in the paper's tables: recall is printed times 100 without "%"."""
    metric = TASKS[task].metric
    unit = metric_unit(metric)
    if metric.startswith("recall"):
        at = metric.removeprefix("recall").strip("_@ ").removeprefix("at").strip("_")
        return unit._replace(name=f"recall@{at} (× 100)" if at else "recall (× 100)", suffix="")
    return unit


def unit_text(task: str) -> str:
    unit = paper_unit(task)
    return unit.name + unit.suffix


def value_cell(plan: RunPlan, result: RunValue, **fields: Any) -> ComparisonCell:
    """Build the cell of a result in the paper's unit. `fields` add or replace fields."""
    task = result.run.task
    unit = paper_unit(task)
    defaults: dict[str, Any] = {
        "ours": None if result.value is None else result.value * unit.factor,
        "half_width": None if result.half_width is None else result.half_width * unit.factor,
        "by_seed": result.by_seed,
        "state": result.state,
        "run": result.path,
        "label": plan.label(task),
        "digits": unit.digits,
        "unit": unit.name + unit.suffix,
    }
    return ComparisonCell(**{**defaults, **fields})


def ranked_cell(
    plan: RunPlan, method: str, result: RunValue, detail: str = "", **fields: Any
) -> ComparisonCell:
    """Build the cell of a method on a task. It is compared with the other methods for bold."""
    task = result.run.task
    remark = f"({result.remark})" if result.remark else ""
    defaults: dict[str, Any] = {
        "row": TASK_NAMES[task],
        "column": METHOD_NAMES[method],
        "group": TASK_NAMES[task],
        "higher_is_better": TASKS[task].better == "higher",
        "ranked": method in OPTIMIZERS,
        "detail": " ".join(part for part in (detail, remark) if part),
    }
    return value_cell(plan, result, **{**defaults, **fields})


def seed_notes(plan: RunPlan, cells: Sequence[ComparisonCell]) -> tuple[str, ...]:
    """Explain intervals over several seeds, and name the differences that are within noise."""
    if len(plan.seeds) == 1:
        return ()
    notes = [
        "Runs with the paper's rates: mean ± half-width of the 95 % confidence interval over the seeds "
        f"{', '.join(map(str, plan.seeds))}. Sweeps, including SCAFFOLD's, use seed {plan.seeds[0]} only."
    ]
    for row in dict.fromkeys(cell.row for cell in cells):
        ranked = [cell for cell in cells if cell.row == row and cell.ranked and cell.ours is not None]
        if not ranked:
            continue
        sign = 1 if ranked[0].higher_is_better else -1
        best = max(ranked, key=lambda cell: sign * (cell.ours or 0.0))
        others = [cell for cell in ranked if cell is not best]
        pairs = [(c, paired_difference(dict(best.by_seed), dict(c.by_seed))) for c in others]
        similar = [cell.column for cell, difference in pairs if is_noise(difference)]
        if similar:
            names = f"{best.column}, the best, and {', '.join(similar)}"
            notes.append(f"{row}: the difference between {names} is within noise.")
    return tuple(notes)
