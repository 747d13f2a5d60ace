"""The section of the report on the clients: the distribution of their sizes and labels, as small figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedopt.formatting import count_noun
from fedopt.runs.records import RunRecord


class Box(NamedTuple):
    """A rectangle in a column of a figure. `top` and `height` are shares of the height of the figure."""

    column: int
    top: float
    height: float
    tooltip: str
    strength: float = 1.0  # opacity


class ClientFigure(NamedTuple):
    title: str
    note: str
    columns: int
    boxes: list[Box]
    left: str  # texts below the figure
    right: str


class ClientsSection(NamedTuple):
    lead: str
    figures: list[ClientFigure]
    has_other_data: bool  # whether other runs of the report have other clients


def clients_section(records: Sequence[RunRecord]) -> ClientsSection | None:
    """Describe the clients of the run with most clients. Runs of older versions have no summary."""
    summaries = [record.clients for record in records if record.clients]
    try:
        summaries.sort(key=lambda summary: -int(summary["clients"]))
        if not summaries:
            return None
        summary = summaries[0]
        figures = [_sizes_figure(summary["sizes"])] if "sizes" in summary else []
        if "labels" in summary:
            figures += [_labels_figure(summary["labels"]), _clients_figure(summary["labels"])]
        return ClientsSection(_lead(summary), figures, any(other != summary for other in summaries))
    except (KeyError, TypeError, ValueError, OverflowError):  # data.json is damaged
        return None


def _lead(summary: dict[str, Any]) -> str:
    total = summary.get("examples")
    text = f"{count_noun(summary['clients'], 'training client')}"
    text += f" with {count_noun(total, 'example')}." if total is not None else "."
    if "sizes" in summary:
        low, middle, high = (summary["sizes"]["percentiles"][q] for q in ("5", "50", "95"))
        measured = "" if total is not None else f" (of {summary['sizes']['clients']} sampled clients)"
        text += (
            f" Examples per client: median {middle:,}, 5th to 95th percentile {low:,} to {high:,}{measured}."
        )
    if "labels" in summary:
        low, middle, high = (summary["labels"]["per_client"][q] for q in ("5", "50", "95"))
        text += f" Different labels per client: median {middle}, {low} to {high}."
        if summary["labels"]["clients"] < summary["clients"]:
            text += f" Labels are those of {summary['labels']['clients']:,} sampled clients."
    return text


def _sizes_figure(sizes: dict[str, Any]) -> ClientFigure:
    edges, counts = sizes["edges"], sizes["counts"]
    names = [_range(a, b - 1) for a, b in zip(edges, edges[1:], strict=False)]
    tooltips = [f"{name} examples: {count_noun(n, 'client')}" for name, n in zip(names, counts, strict=True)]
    return ClientFigure(
        "Clients by their number of examples",
        f"The highest bar has {count_noun(max(counts), 'client')}.",
        len(counts),
        _bars(counts, tooltips),
        f"{edges[0]:,}",
        f"{edges[-1] - 1:,} examples",
    )


def _labels_figure(labels: dict[str, Any]) -> ClientFigure:
    names, counts = labels["names"], labels["examples"]
    total = sum(counts)
    tooltips = [f"label {name}: {100 * n / total:.1f} %" for name, n in zip(names, counts, strict=True)]
    return ClientFigure(
        "Examples by label",
        f"All sampled clients together. The highest bar is {100 * max(counts) / total:.1f} %.",
        len(counts),
        _bars(counts, tooltips),
        f"label {names[0]}",
        str(names[-1]),
    )


def _clients_figure(labels: dict[str, Any]) -> ClientFigure:
    """A column per client and a row per label; the darker, the larger the label's share of the client."""
    shown: dict[str, list[int]] = labels["shown"]
    height, boxes = 1 / len(labels["names"]), []
    for column, (client, counts) in enumerate(shown.items()):
        total = sum(counts) or 1
        for row, (name, n) in enumerate(zip(labels["names"], counts, strict=True)):
            if n:
                tooltip = f"client {client}, label {name}: {100 * n / total:.0f} %"
                boxes.append(Box(column, row * height, height, tooltip, (n / total) ** 0.5))
    return ClientFigure(
        "Labels of single clients",
        "A column per client, a row per label. Strong colour: a large share of the client's examples.",
        len(shown),
        boxes,
        f"{count_noun(len(shown), 'client')} of {labels['clients']:,}",
        count_noun(len(labels["names"]), "label"),
    )


def _bars(counts: Sequence[int], tooltips: Sequence[str]) -> list[Box]:
    heights = [n / (max(counts) or 1) for n in counts]
    return [
        Box(column, 1 - height, height, tooltip)
        for column, (height, tooltip) in enumerate(zip(heights, tooltips, strict=True))
    ]


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low >= high else f"{low:,} to {high:,}"
