"""Centralized training and decay of the client rate on EMNIST CR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedopt.reports import TRAIN_LOSS
from fedopt_paper.artifacts.cells import ArtifactContent, comparison_content, ranked_cell, seed_notes
from fedopt_paper.comparison import ComparisonCell, ComparisonTable, mark_bold, point_text
from fedopt_paper.plan import RunPlan
from fedopt_paper.published import (
    CENTRALIZED,
    DECAY_TASK,
    EXP_DECAY,
    EXP_DECAY_BOLD,
    METHOD_NAMES,
    OPTIMIZERS,
    paper_settings,
)
from fedopt_paper.results import RunReader, RunValue

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


def decay(reader: RunReader) -> ArtifactContent:
    """Compare centralized training, constant rates and exponential decay of the client rate."""
    plan = reader.plan
    cells = [*(_central_cell(reader, *pair) for pair in zip(CENTRALIZED, OPTIMIZERS, strict=True))]
    for method in OPTIMIZERS:
        result, paper = reader.published(DECAY_TASK, method), paper_settings(DECAY_TASK).results[method]
        cells.append(_cell(reader, method, "Constant η_l", result, paper=paper))
    for method in OPTIMIZERS:
        result, detail = reader.tuned(plan.decay_sweep(method))
        paper, bold = EXP_DECAY[method], method in EXP_DECAY_BOLD
        cells.append(_cell(reader, method, "ExpDecay", result, detail=detail, paper=paper, paper_bold=bold))
    rounds = plan.scale.decay_rounds
    interval = "every round" if rounds == 1 else f"every {rounds} rounds"
    note = (
        f"Constant: the runs of the performance table. ExpDecay: the client rate times 0.1 {interval}, with "
        "rates tuned again and selected by mean training loss. Bold in our rows compares the federated "
        "numbers."
    )
    title = "EMNIST CR: centralized, constant rates, decay of the client rate"
    table = ComparisonTable(title, mark_bold(cells), "", note)
    notes = (*_central_notes(plan), *seed_notes(plan, cells))
    return comparison_content(plan, table, "EMNIST CR test accuracy", notes)


def _cell(reader: RunReader, method: str, row: str, result: RunValue, **fields: Any) -> ComparisonCell:
    """Build a cell. By default its bold compares the federated numbers."""
    defaults = {"row": row, "column": _COLUMNS[method], "group": "federated"}
    return ranked_cell(reader.plan, method, result, **{**defaults, **fields})


def _central_cell(reader: RunReader, optimizer: str, method: str) -> ComparisonCell:
    """Build the cell of centralized training: accuracy after the last epoch at the selected rate."""
    plan, detail = reader.plan, ""
    result = reader.best(plan.central_sweep(optimizer), TRAIN_LOSS, plan.central_last_epochs)
    if result.value is not None:
        rates = plan.central_rates(optimizer)
        at_edge = len(rates) > 2 and result.run.point["client_lr"] in (rates[0], rates[-1])
        remark = "at the edge of the grid: a better rate may lie beyond" if at_edge else ""
        detail = point_text(result.run.point, remark)
        result = reader.test_value(result.run)
    fields = {"detail": detail, "paper": CENTRALIZED[optimizer], "group": "", "ranked": False}
    return _cell(reader, method, "Centralized", result, **fields)


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
