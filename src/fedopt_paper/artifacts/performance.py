"""Validation and test performance of all methods, and validation curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedopt.reports import Interval, confidence_interval
from fedopt.runs import RunRecord
from fedopt.tasks import TASKS
from fedopt_paper import plotting
from fedopt_paper.artifacts.cells import (
    ArtifactContent,
    claim_notes,
    comparison_content,
    limit_claims,
    paper_unit,
    ranked_cell,
    seed_notes,
    unit_text,
    value_cell,
)
from fedopt_paper.comparison import ComparisonCell, ComparisonTable, mark_bold
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import (
    CURVE_ONLY,
    METHOD_NAMES,
    METHODS,
    OPTIMIZERS,
    PERFORMANCE_BOLD,
    SCAFFOLD,
    TASK_NAMES,
    TEST_BOLD,
    paper_settings,
)
from fedopt_paper.results import RunReader, RunValue, mean_over_seeds

UNTRAINED = "before training"

Curve = dict[int, Interval]  # by round


def bold_rule(plan: RunPlan) -> str:
    """Return the meaning of bold numbers. Ours are bold only where they have a meaning."""
    ours = "; ours if less than 0.5 points (MSE: 0.5 %) from our best" if plan.scale.has_meaning else ""
    return f"Bold: as printed in the paper{ours}."


def tuning_note(plan: RunPlan) -> str:
    """Return where the rates of the methods come from."""
    untuned = [TASK_NAMES[task] for task in plan.tasks if not plan.scale.has_sweeps(task)]
    if len(untuned) == len(plan.tasks):
        scaffold = "FedAvg's rates"
    else:
        exception = f" ({', '.join(untuned)}: FedAvg's rates)" if untuned else ""
        scaffold = f"the best rates of our own sweep{exception}"
    return (
        "The five optimizers use the rates and tau that the paper prints. SCAFFOLD uses "
        f"{scaffold} and does not count when the best result is determined."
    )


def method_runs(reader: RunReader, task: str, method: str) -> tuple[PlannedRun, ...]:
    """Return the runs that represent a method: one per seed, or the best run of SCAFFOLD's sweep."""
    if method != SCAFFOLD:
        return reader.plan.published_per_seed(task, method)
    best = reader.best(reader.plan.sweep(task, SCAFFOLD))
    return () if best.value is None else (best.run,)


def method_cell(reader: RunReader, task: str, method: str) -> ComparisonCell:
    """Build the cell of a method in the performance table."""
    plan = reader.plan
    if method == SCAFFOLD:
        result, detail = reader.tuned(plan.sweep(task, SCAFFOLD))
        if not detail:  # no best run
            result = result._replace(path=None)
        return ranked_cell(plan, method, result, detail, paper_text=CURVE_ONLY)
    result = reader.published(task, method)
    paper, bold = paper_settings(task).results[method], method in PERFORMANCE_BOLD[task]
    return ranked_cell(plan, method, result, paper=paper, paper_bold=bold)


def untrained_cell(reader: RunReader, task: str) -> ComparisonCell:
    """Build the cell of the initial model, which shows how far the few rounds of a small scale get."""
    runs = [reader.plan.published(task, method) for method in OPTIMIZERS]
    found = (
        RunValue(run, value, path=record.path)
        for run in runs
        for record in reader.records([run])
        for t, value in zip(*record.curve("test", record.metric), strict=True)
        if t == 0
    )
    initial = next(found, RunValue(runs[0], None))
    return value_cell(reader.plan, initial, row=TASK_NAMES[task], column=UNTRAINED, ranked=False)


def performance(reader: RunReader) -> ArtifactContent:
    """Compare the validation performance of all methods."""
    plan = reader.plan
    cells = mark_bold([method_cell(reader, task, method) for task in plan.tasks for method in METHODS])
    title = f"Validation performance, mean over {plan.scale.averaged_rounds}"
    table = ComparisonTable(title, cells, "task", f"{tuning_note(plan)} {bold_rule(plan)}")
    content = comparison_content(plan, table, "Validation performance", seed_notes(plan, cells))
    if plan.scale.is_comparable:
        return content
    (table,) = content.tables  # the figure does not show the initial models: they are far from the others
    initial = (untrained_cell(reader, task) for task in plan.tasks)
    return content._replace(tables=(replace(table, cells=(*table.cells, *initial)),))


def so_test(reader: RunReader) -> ArtifactContent:
    """Compare the test performance on Stack Overflow."""
    plan = reader.plan
    cells = []
    for task in plan.tasks:
        for method in OPTIMIZERS:
            runs = plan.published_per_seed(task, method)
            result = mean_over_seeds([reader.test_value(run) for run in runs])
            paper, bold = paper_settings(task).test_results[method], method in TEST_BOLD[task]
            cells.append(ranked_cell(plan, method, result, paper=paper, paper_bold=bold))
    data = "full test set" if plan.scale.full_test else "evaluation sample, not the full test set,"
    note = f"{bold_rule(plan)} The paper prints 66.5 next to 66.8 without bold, contrary to its own rule."
    table = ComparisonTable(f"Stack Overflow: {data} after the last round", mark_bold(cells), "task", note)
    return comparison_content(plan, table, "Stack Overflow, after training", seed_notes(plan, table.cells))


def curves(reader: RunReader) -> ArtifactContent:
    """Show the validation metric of all methods over the rounds, with one panel for each task."""
    plan = reader.plan
    records = {
        task: {method: reader.records(method_runs(reader, task, method)) for method in METHODS}
        for task in plan.tasks
    }
    lines = {
        task: {
            method: curve_with_intervals(found, TASKS[task].metric, paper_unit(task).factor)
            for method, found in by_method.items()
        }
        for task, by_method in records.items()
    }
    cells = mark_bold([method_cell(reader, task, method) for task in plan.tasks for method in METHODS])
    points = [
        ComparisonCell(
            f"{TASK_NAMES[task]}, {round}" if len(plan.tasks) > 1 else str(round),
            METHOD_NAMES[method],
            point.mean,
            half_width=point.half_width,
            run=records[task][method][0].path,
            label=plan.label(task),
            unit=unit_text(task),
        )
        for task, curves_of_task in lines.items()
        for method, curve in curves_of_task.items()
        for round, point in curve.items()
    ]
    names = TASK_NAMES[plan.tasks[0]] if len(plan.tasks) == 1 else "Validation performance"
    title = f"{names}: mean over {plan.scale.averaged_rounds}"
    tables = (
        limit_claims(plan, ComparisonTable(title, cells, "task")),
        ComparisonTable("curve", tuple(points), on_page=False),
    )
    bands = ("Bands are 95 % confidence intervals over the seeds.",) if len(plan.seeds) > 1 else ()
    notes = (*bands, *seed_notes(plan, cells), *claim_notes(plan))
    return ArtifactContent(tables, _draw_curves(plan, lines), notes)


def curve_with_intervals(records: Sequence[RunRecord], metric: str, factor: float) -> Curve:
    """Return the mean and interval of each round over the runs that were evaluated in it."""
    values: dict[int, list[float]] = {}
    for record in records:
        for round, value in zip(*record.curve("test", metric), strict=True):
            values.setdefault(round, []).append(value * factor)
    return {round: confidence_interval(by_run) for round, by_run in sorted(values.items())}


@plotting.styled()
def _draw_curves(plan: RunPlan, lines: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """Draw one panel per task, with a title of its own if there are several."""
    tasks = list(lines)
    if len(tasks) == 1:
        title = f"{TASK_NAMES[tasks[0]]}{plan.title_suffix}"
        figure, axes = plotting.new_figure(1, title, width=6.4, height=3.6)
    else:
        figure, axes = plotting.new_figure(len(tasks), f"Validation performance{plan.title_suffix}")
    for axis, task in zip(axes, tasks, strict=True):
        if len(tasks) > 1:
            axis.set_title(TASK_NAMES[task] + plan.restrict([task]).title_suffix)
        _draw_panel(axis, task, lines[task])
    plotting.draw_method_legend(
        figure, {m for panel in lines.values() for m, curve in panel.items() if curve}
    )
    return figure


def _draw_panel(axis: Axes, task: str, lines: Mapping[str, Curve]) -> None:
    """Draw the curves of all methods on one task."""
    unit = paper_unit(task)
    plotting.draw_grid_lines(axis)
    drawn = [method for method, curve in lines.items() if curve]
    for method in drawn:
        rounds = list(lines[method])
        means = np.array([point.mean for point in lines[method].values()])
        half_widths = np.array([point.half_width or 0.0 for point in lines[method].values()])
        style = plotting.LINE_STYLES[method]
        axis.plot(rounds, means, markevery=max(1, len(rounds) // 12), **style)
        if half_widths.any():
            low, high = means - half_widths, means + half_widths
            axis.fill_between(rounds, low, high, color=style["color"], alpha=0.15, lw=0)
    if not drawn:
        plotting.draw_message(axis, "no runs yet")
    elif unit.name.startswith("MSE"):
        axis.set_yscale("log")
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel(f"validation {unit.name}{unit.suffix}")
