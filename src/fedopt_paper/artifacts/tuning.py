"""Best hyperparameters: learning rates, tau, and how performance depends on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fedopt.reports import TRAIN_LOSS
from fedopt.tasks import TASKS
from fedopt_paper import plotting
from fedopt_paper.artifacts.cells import (
    NO_NUMBERS,
    ArtifactContent,
    comparison_content,
    paper_unit,
    unit_text,
    value_cell,
)
from fedopt_paper.comparison import ComparisonCell, ComparisonTable, axis_text, log10_text, point_text
from fedopt_paper.plan import PlannedRun, RunPlan
from fedopt_paper.published import (
    ADAPTIVE,
    HEAT_MAP_TAU,
    METHOD_NAMES,
    METHODS,
    OPTIMIZERS,
    TASK_NAMES,
    paper_settings,
)
from fedopt_paper.results import DIVERGED, RunReader, RunValue, missing_runs, select_best

SELECTION = (
    "Ours: the run of the sweep with the smallest mean training loss over {rounds}. Differences are in "
    "log10. The steps of the paper's grid are 0.5 for rates and 1 for tau."
)
OMITTED = "omitted"
MIN_CHANGE = 0.1  # of the initial validation loss; runs below it count as untrained
BY_VALIDATION, BY_TRAINING = "best by validation", "chosen by training loss"
_SELECTION_STYLES: Mapping[str, dict[str, Any]] = {
    BY_VALIDATION: {"linestyle": "-"},
    BY_TRAINING: {"linestyle": "--", "mfc": "none"},
}

StyledLine = tuple[dict[str, Any], Mapping[float, float]]  # line style, y by x


def learning_rates(reader: RunReader) -> ArtifactContent:
    """Compare the best client and server rates."""
    title = "log10 of the best client (η_l) and server (η) rates"
    return _best_values(reader, METHODS, ("client_lr", "server_lr"), title, "Best learning rates, log10", 1)


def tau_values(reader: RunReader) -> ArtifactContent:
    """Compare the best values of tau."""
    return _best_values(reader, ADAPTIVE, ("tau",), "log10 of the best τ", "Best τ, log10", 0)


def _best_values(
    reader: RunReader, methods: Sequence[str], axes: Sequence[str], title: str, figure_title: str, digits: int
) -> ArtifactContent:
    """Compare the best values on some axes of the tuning grid."""
    cells = []
    for task in reader.plan.tasks:
        for method in methods:
            printed = paper_settings(task).rates.get(method)
            best = reader.best(reader.plan.sweep(task, method))
            cells += [
                ComparisonCell(
                    row=TASK_NAMES[task],
                    column=f"{METHOD_NAMES[method]} {axis_text(axis)}",
                    ours=None if best.value is None else best.run.point[axis],
                    paper=None if printed is None else float(getattr(printed, axis)),
                    paper_text="none printed" if printed is None else "",
                    state=best.state,
                    run=best.path,
                    label=reader.plan.label(task),
                    digits=digits,
                    unit="log10",
                )
                for axis in axes
            ]
    table = ComparisonTable(
        title, tuple(cells), "task", SELECTION.format(rounds=reader.plan.scale.averaged_rounds)
    )
    return comparison_content(reader.plan, table, figure_title)


def server_rates(reader: RunReader) -> ArtifactContent:
    """Show the best server rate by validation for each client rate."""
    plan, tables = reader.plan, []
    lines: dict[str, list[StyledLine]] = {}
    for task in plan.tasks:
        cells, lines[task] = [], []
        for index, method in enumerate(OPTIMIZERS):
            results = best_server_rates(reader, task, method)
            known = {
                rate: best.run.point["server_lr"] for rate, best in results.items() if best.value is not None
            }
            cells += [
                ComparisonCell(
                    METHOD_NAMES[method],
                    axis_text("client_lr", rate),
                    ours=known.get(rate),
                    state=best.state,
                    run=best.path,
                    label=plan.label(task),
                    unit=axis_text("server_lr"),
                )
                for rate, best in results.items()
            ]
            shifted = {rate: server_rate + 0.05 * (index - 2) for rate, server_rate in known.items()}
            lines[task].append((plotting.LINE_STYLES[method], shifted))
        title = f"{TASK_NAMES[task]}: best {axis_text('server_lr')}"
        tables.append(ComparisonTable(title, tuple(cells), "optimizer", compare=False))
    rule = (
        f"Selected by validation, with τ = 1e{log10_text(HEAT_MAP_TAU)} for adaptive methods. “{OMITTED}”: "
        "with every server rate, the validation loss after the last round is within 10 % of the initial one. "
        "This is the rule of the caption. The text has another rule: within 10 % of the worst loss. Lines in "
        "the figure are shifted slightly so that they do not cover each other."
    )
    figure = _draw_lines(
        plan,
        f"Best server rate for each client rate{plan.title_suffix}",
        lines,
        (plotting.CLIENT_RATE, lambda task: "best " + plotting.SERVER_RATE),
        (0.5, 0.5),
        "no client rate changed the\ninitial loss by more than 10 %\n(or not run yet)",
    )
    plotting.draw_method_legend(figure, OPTIMIZERS)
    return ArtifactContent(tuple(tables), figure, (NO_NUMBERS, rule))


def best_server_rates(reader: RunReader, task: str, method: str) -> dict[float, RunValue]:
    """Return the best run for each client rate. Its state gives the reason if there is none."""
    runs = reader.plan.heat_map(task, method)
    results: dict[float, RunValue] = {}
    for client_rate in sorted({run.point["client_lr"] for run in runs}):
        column = [run for run in runs if run.point["client_lr"] == client_rate]
        values = [reader.value(run) for run in column]
        best = select_best(values, TASKS[task].better == "lower")
        state = missing_runs(values)
        if state is None and best is None:
            state = DIVERGED
        elif state is None and not any(_has_trained(reader, run) for run in column):
            state = OMITTED
        results[client_rate] = best if best and state is None else RunValue(column[0], None, state or "")
    return results


def _has_trained(reader: RunReader, run: PlannedRun) -> bool:
    """Whether the last validation loss differs from the initial one by more than 10 %."""
    record, final = reader.record(run), reader.value(run, "loss", last=1).value
    if record is None or final is None:
        return False
    rounds, losses = record.curve("test", "loss")
    return rounds[:1] == [0] and abs(final - losses[0]) > MIN_CHANGE * abs(losses[0])


def tau(reader: RunReader) -> ArtifactContent:
    """Show the validation metric for each tau, with rates selected by either description in the paper."""
    plan, tables = reader.plan, []
    lines: dict[str, list[StyledLine]] = {}
    for task in plan.tasks:
        cells, lines[task] = [], []
        for method in ADAPTIVE:
            for selection, style in _SELECTION_STYLES.items():
                results = tau_results(reader, task, method, selection)
                row = f"{METHOD_NAMES[method]}, {selection}"
                cells += [_tau_cell(plan, row, value, result) for value, result in results.items()]
                factor = paper_unit(task).factor
                points = {value: r.value * factor for value, r in results.items() if r.value is not None}
                lines[task].append(({**plotting.LINE_STYLES[method], **style}, points))
        title = f"{TASK_NAMES[task]}, {unit_text(task)}"
        tables.append(ComparisonTable(title, tuple(cells), "optimizer", compare=False))
    note = (
        "The text selects the best rates a posteriori, by validation. The caption states that they were "
        "selected by training loss. Both are shown."
    )
    title = f"Validation performance against τ{plan.title_suffix}"
    figure = _draw_lines(plan, title, lines, (plotting.TAU, unit_text), (1,), "not run yet")
    plotting.draw_method_legend(figure, ADAPTIVE, _SELECTION_STYLES)
    return ArtifactContent(tuple(tables), figure, (NO_NUMBERS, note))


def tau_results(reader: RunReader, task: str, method: str, selection: str) -> dict[float, RunValue]:
    """Return the validation result for each tau with the rates that `selection` chooses."""
    runs = reader.plan.sweep(task, method)
    select = TASKS[task].metric if selection == BY_VALIDATION else TRAIN_LOSS
    results = {}
    for value in sorted({run.point["tau"] for run in runs}):
        best = reader.best([run for run in runs if run.point["tau"] == value], select)
        results[value] = best if best.value is None else reader.value(best.run)
    return results


def _tau_cell(plan: RunPlan, row: str, value: float, result: RunValue) -> ComparisonCell:
    rates = {axis: rate for axis, rate in result.run.point.items() if axis != "tau"}
    detail = point_text(rates) if result.value is not None else ""
    return value_cell(plan, result, row=row, column=f"τ = 1e{log10_text(value)}", detail=detail)


@plotting.styled()
def _draw_lines(
    plan: RunPlan,
    title: str,
    lines: Mapping[str, Sequence[StyledLine]],
    axis_labels: tuple[str, Callable[[str], str]],
    ticks: tuple[float, ...],
    empty_message: str,
) -> Figure:
    """Draw one panel per task with its lines."""
    figure, axes = plotting.new_figure(len(lines), title)
    for axis, (task, styled_lines) in zip(axes, lines.items(), strict=True):
        plotting.draw_grid_lines(axis)
        for style, points in styled_lines:
            if points:
                axis.plot(list(points), list(points.values()), **style)
        if not axis.lines:
            plotting.draw_message(axis, empty_message)
        axis.set_title(TASK_NAMES[task] + plan.restrict([task]).title_suffix)
        axis.set_xlabel(axis_labels[0])
        axis.set_ylabel(axis_labels[1](task))
        plotting.set_grid_ticks(axis, *ticks)
    return figure
