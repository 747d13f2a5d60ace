"""Centralized training and decay of the client rate on EMNIST CR."""

from __future__ import annotations

from collections.abc import Iterator

from fedopt.reproduction.artifacts.cells import ArtifactContent, ranked_cell, seed_notes
from fedopt.reproduction.comparison import ComparisonCell, ComparisonTable, mark_bold, point_text
from fedopt.reproduction.plan import PlannedRun, RunPlan
from fedopt.reproduction.plotting import draw_comparison
from fedopt.reproduction.published import (
    CENTRALIZED,
    DECAY_TASK,
    EXP_DECAY,
    EXP_DECAY_BOLD,
    METHOD_NAMES,
    OPTIMIZERS,
    paper_settings,
)
from fedopt.reproduction.results import RunReader, mean_over_seeds
from fedopt.sweep.grid import edges
from fedopt.sweep.trials import TRAIN_LOSS

_OPTIMIZER_NAMES = {"adagrad": "Adagrad", "adam": "Adam", "yogi": "Yogi", "sgdm": "SGDM", "sgd": "SGD"}
_COLUMNS = {  # a federated method and its server optimizer in centralized training
    method: f"{_OPTIMIZER_NAMES[optimizer]} / {METHOD_NAMES[method]}"
    for optimizer, method in zip(CENTRALIZED, OPTIMIZERS, strict=True)
}
_CENTRAL_OPTIMIZERS = {
    "as_run": "Optimizers as in the authors' Keras code: bias correction in Adam and Yogi, accumulators "
    "start at 0, the rate is inside the momentum; tau = 1e-3, which the paper does not print.",
    "as_printed": "Optimizers as in Algorithm 2: no bias correction, v_{-1} = tau^2; tau = 1e-3, which the "
    "paper does not print for them.",
}


def plan_decay(plan: RunPlan) -> Iterator[PlannedRun]:
    for optimizer in CENTRALIZED:
        yield from plan.central_sweep(optimizer)
    for method in OPTIMIZERS:
        yield from plan.published_per_seed(DECAY_TASK, method)
        yield from plan.decay_sweep(method)


def decay(reader: RunReader) -> ArtifactContent:
    """Compare centralized training, constant rates and exponential decay of the client rate."""
    plan = reader.plan
    cells = [
        *(_central_cell(reader, *pair) for pair in zip(CENTRALIZED, OPTIMIZERS, strict=True)),
        *(_constant_cell(reader, method) for method in OPTIMIZERS),
        *(_decay_cell(reader, method) for method in OPTIMIZERS),
    ]
    rounds = plan.scale.decay_rounds
    interval = "every round" if rounds == 1 else f"every {rounds} rounds"
    note = (
        f"Constant: the runs of the performance table. ExpDecay: the client rate times 0.1 {interval}, with "
        "rates tuned again and selected by mean training loss. Bold in our rows compares the federated "
        "numbers."
    )
    title = "EMNIST CR: centralized, constant rates, decay of the client rate"
    table = ComparisonTable(title, mark_bold(cells), "", note)
    figure = draw_comparison(table, f"EMNIST CR test accuracy{plan.title_suffix}")
    return ArtifactContent((table,), figure, (*_central_notes(plan), *seed_notes(plan, cells)))


def _central_cell(reader: RunReader, optimizer: str, method: str) -> ComparisonCell:
    """Build the cell of centralized training: accuracy after the last epoch at the selected rate."""
    plan = reader.plan
    result = reader.best(plan.central_sweep(optimizer), TRAIN_LOSS, plan.central_last_epochs)
    detail = ""
    if result.value is not None:
        rates = plan.central_rates(optimizer)
        at_edge = len(rates) > 2 and edges(result.run.point, {"client_lr": rates})
        remark = "at the edge of the grid: a better rate may lie beyond" if at_edge else ""
        detail = point_text(result.run.point, remark)
        result = reader.test_value(result.run)
    return ranked_cell(
        plan,
        method,
        result,
        detail,
        row="Centralized",
        column=_COLUMNS[method],
        paper=CENTRALIZED[optimizer],
        group="",
        ranked=False,
    )


def _constant_cell(reader: RunReader, method: str) -> ComparisonCell:
    runs = reader.plan.published_per_seed(DECAY_TASK, method)
    result = mean_over_seeds([reader.value(run) for run in runs])
    paper = paper_settings(DECAY_TASK).results[method]
    column = _COLUMNS[method]
    return ranked_cell(
        reader.plan, method, result, row="Constant η_l", column=column, paper=paper, group="federated"
    )


def _decay_cell(reader: RunReader, method: str) -> ComparisonCell:
    best = reader.best(reader.plan.decay_sweep(method))
    return ranked_cell(
        reader.plan,
        method,
        best if best.value is None else reader.value(best.run),
        point_text(best.run.point) if best.value is not None else "",
        row="ExpDecay",
        column=_COLUMNS[method],
        paper=EXP_DECAY[method],
        paper_bold=method in EXP_DECAY_BOLD,
        group="federated",
    )


def _central_notes(plan: RunPlan) -> Iterator[str]:
    last, count, writers = plan.central_last_epochs, len(plan.central_rates("sgd")), plan.scale.writers
    epochs = "of the last epoch" if last == 1 else f"over the last {last} epochs"
    yield (
        "Centralized: accuracy after the last epoch. The paper prints no grid for it. We try "
        f"{count} values of the client grid of EMNIST CR for each optimizer and select by the mean training "
        f"loss {epochs}."
    )
    yield _CENTRAL_OPTIMIZERS[plan.variant]
    if writers:
        yield f"Centralized numbers are from the test images of the first {writers} writers only."
