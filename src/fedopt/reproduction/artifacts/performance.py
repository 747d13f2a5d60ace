"""Validation and test performance of all methods, and validation curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.reproduction import plotting
from fedopt.reproduction.artifacts.cells import (
    ArtifactContent,
    comparison_content,
    paper_unit,
    ranked_cell,
    seed_notes,
    unit_text,
)
from fedopt.reproduction.comparison import ComparisonCell, ComparisonTable, mark_bold, point_text
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.published import (
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
from fedopt.reproduction.results import RunReader, mean_over_seeds
from fedopt.runs.records import RunRecord
from fedopt.tasks import TASKS

TUNING = (
    "The five optimizers use the rates and tau that the paper prints. SCAFFOLD uses the best rates of our "
    "own sweep and does not count when the best result is determined."
)
BOLD_RULE = "Bold: as printed in the paper; ours if less than 0.5 points (MSE: 0.5 %) from our best."

Curve = dict[int, Interval]  # by round


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
        best = reader.best(plan.sweep(task, SCAFFOLD))
        if best.value is None:
            return ranked_cell(plan, method, best._replace(path=None), paper_text=CURVE_ONLY)
        detail = point_text(best.run.point)
        return ranked_cell(plan, method, reader.value(best.run), detail, paper_text=CURVE_ONLY)
    result = mean_over_seeds([reader.value(run) for run in plan.published_per_seed(task, method)])
    paper, bold = paper_settings(task).results[method], method in PERFORMANCE_BOLD[task]
    return ranked_cell(plan, method, result, paper=paper, paper_bold=bold)


def performance(reader: RunReader) -> ArtifactContent:
    """Compare the validation performance of all methods."""
    plan = reader.plan
    cells = mark_bold([method_cell(reader, task, method) for task in plan.tasks for method in METHODS])
    title, note = "Validation performance, mean over the last 100 rounds", f"{TUNING} {BOLD_RULE}"
    table = ComparisonTable(title, cells, "task", note)
    return comparison_content(plan, table, "Validation performance", seed_notes(plan, cells))


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
    note = f"{BOLD_RULE} The paper prints 66.5 next to 66.8 without bold, contrary to its own rule."
    table = ComparisonTable(f"Stack Overflow: {data} after the last round", mark_bold(cells), "task", note)
    return comparison_content(plan, table, "Stack Overflow, after training", seed_notes(plan, table.cells))


def curves(reader: RunReader) -> ArtifactContent:
    """Show the validation metric of all methods on one task over the rounds."""
    plan = reader.plan
    (task,) = plan.tasks
    unit = paper_unit(task)
    lines: dict[str, Curve] = {}
    points: list[ComparisonCell] = []
    for method in METHODS:
        records = reader.records(method_runs(reader, task, method))
        lines[method] = curve_with_intervals(records, TASKS[task].metric, unit.factor)
        points += [
            ComparisonCell(
                str(round),
                METHOD_NAMES[method],
                point.mean,
                half_width=point.half_width,
                run=records[0].path,
                label=plan.label(task),
                unit=unit_text(task),
            )
            for round, point in lines[method].items()
        ]
    cells = mark_bold([method_cell(reader, task, method) for method in METHODS])
    tables = (
        ComparisonTable(f"{TASK_NAMES[task]}: mean over the last 100 rounds", cells, "task"),
        ComparisonTable("curve", tuple(points), on_page=False),
    )
    bands = ("Bands are 95 % confidence intervals over the seeds.",) if len(plan.seeds) > 1 else ()
    return ArtifactContent(tables, _draw_curves(plan, task, lines), (*bands, *seed_notes(plan, cells)))


def curve_with_intervals(records: Sequence[RunRecord], metric: str, factor: float) -> Curve:
    """Return the mean and interval of each round over the runs that were evaluated in it."""
    values: dict[int, list[float]] = {}
    for record in records:
        for round, value in zip(*record.curve("test", metric), strict=True):
            values.setdefault(round, []).append(value * factor)
    return {round: confidence_interval(by_run) for round, by_run in sorted(values.items())}


@plotting.styled()
def _draw_curves(plan: RunPlan, task: str, lines: dict[str, Curve]) -> Figure:
    unit = paper_unit(task)
    figure, (axis,) = plotting.new_figure(1, f"{TASK_NAMES[task]}{plan.title_suffix}", width=6.4, height=3.6)
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
    plotting.draw_method_legend(figure, drawn)
    return figure
