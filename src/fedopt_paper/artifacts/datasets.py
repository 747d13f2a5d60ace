"""Dataset statistics, and the labels of the clients of CIFAR-100."""

from __future__ import annotations

from statistics import median

import numpy as np
from matplotlib.figure import Figure

from fedopt.tasks import TASKS
from fedopt_paper.artifacts.cells import ArtifactContent
from fedopt_paper.comparison import ComparisonCell, ComparisonTable
from fedopt_paper.data_sources import dataset_sizes
from fedopt_paper.plotting import LINE_STYLES, draw_comparison, draw_grid_lines, new_figure, styled
from fedopt_paper.published import DATASET_BY_TASK, DATASET_NAMES, DATASETS
from fedopt_paper.results import RunReader


def datasets(reader: RunReader) -> ArtifactContent:
    """Compare the numbers of clients and examples."""
    plan = reader.plan
    cells = []
    for name in dict.fromkeys(DATASET_BY_TASK[task] for task in plan.tasks):
        source = plan.sources[name]
        sizes = dataset_sizes(source)
        for field, ours, paper in zip(sizes._fields, sizes, DATASETS[name], strict=True):
            row, column = DATASET_NAMES[name], field.replace("_", " ")
            cells.append(ComparisonCell(row, column, ours, paper, label=source.label, digits=0, unit="count"))
    note = "Counted in the imported files, or in the synthetic data where nothing is imported."
    table = ComparisonTable("Dataset statistics", tuple(cells), "dataset", note)
    figure = draw_comparison(table, f"Dataset statistics{plan.title_suffix}", log_scale=True)
    return ArtifactContent((table,), figure)


def labels(reader: RunReader) -> ArtifactContent:
    """Show how many different labels each training client of CIFAR-100 has."""
    source = reader.plan.source("cifar100")
    counts = count_labels(source.directory)
    numbers, clients = np.unique(counts, return_counts=True)
    facts = (
        ("clients with 20 to 30 labels, %", 100 * np.mean((counts >= 20) & (counts <= 30)), "most"),
        ("clients with more than 40 labels", (counts > 40).sum(), "some"),
        ("median", median(counts.tolist()), ""),
        ("fewest", counts.min(), "very few"),
        ("most", counts.max(), "over 40"),
    )
    summary = [
        ComparisonCell("CIFAR-100", column, float(ours), paper_text=paper, label=source.label, digits=0)
        for column, ours, paper in facts
    ]
    histogram = [
        ComparisonCell(str(n), "clients", float(count), label=source.label, digits=0, unit="clients")
        for n, count in zip(numbers.tolist(), clients.tolist(), strict=True)
    ]
    tables = (
        ComparisonTable("Unique labels per training client", tuple(summary), "dataset"),
        ComparisonTable("histogram", tuple(histogram), "labels", on_page=False),
    )
    note = "The paper's figure has no printed numbers. Its row shows the statements of the text."
    title = f"CIFAR-100{reader.plan.title_suffix}: unique labels per client"
    return ArtifactContent(tables, _draw_labels(title, numbers, clients), (note,))


def count_labels(directory: str) -> np.ndarray:
    """Count the different labels of each training client."""
    train = TASKS["cifar100"].federation(directory).train
    assert train.labels is not None  # CIFAR-100 has labels
    return np.array([len(np.unique(train.labels.read(client))) for client in range(len(train.ids))])


@styled()
def _draw_labels(title: str, numbers: np.ndarray, clients: np.ndarray) -> Figure:
    figure, (axis,) = new_figure(1, title, width=6.4, height=3.2)
    draw_grid_lines(axis)
    axis.bar(numbers, clients, width=0.85, color=LINE_STYLES["fedadam"]["color"])
    axis.set_xlabel("different labels of a client")
    axis.set_ylabel("clients")
    return figure
