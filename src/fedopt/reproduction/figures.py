"""The look of the figures, and their files: one drawing for a white sheet, a dark page and a bitmap.

Ink and paper are drawn in two colours that nothing else has. In the SVG of the page they become the page's
own ink on nothing, so that the figure follows the dark; in the files they are dark on white.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from fedopt.reproduction.published import METHOD_NAMES, METHODS
from fedopt.reproduction.tables import Entry, Table

CLIENT_RATE, SERVER_RATE, TAU = r"$\log_{10}\,\eta_l$", r"$\log_{10}\,\eta$", r"$\log_{10}\,\tau$"
INK, PAPER, FAINT = "#232425", "#fefdfe", "#8b8c8d"
# Okabe and Ito's colours, which colour-blind readers can tell apart; lines differ in dash and marker too.
STYLES: dict[str, dict[str, Any]] = {
    "fedadagrad": {"color": "#D55E00", "marker": "s", "linestyle": (0, (6, 2))},
    "fedadam": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "fedyogi": {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1))},
    "fedavgm": {"color": "#CC79A7", "marker": "D", "linestyle": (0, (6, 2, 1, 2))},
    "fedavg": {"color": "#E69F00", "marker": "v", "linestyle": (0, (3, 1))},
    "scaffold": {"color": "#56B4E9", "marker": "P", "linestyle": (0, (9, 2, 1, 2, 1, 2))},
}
_RC: dict[Any, Any] = {
    "svg.hashsalt": "fedopt",  # the same figure, the same file
    "svg.fonttype": "path",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that all machines draw the same
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "axes.unicode_minus": True,
}


_NARROWEST = 6.0  # inches, so that titles and legends fit


def styled() -> Any:
    """A context in which figures are made and saved; nothing of it stays."""
    return matplotlib.rc_context(_RC)


def grid(
    panels: int, columns: int = 3, width: float = 2.9, height: float = 2.4, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with `panels` panels, none of them empty."""
    columns = 4 if panels == 7 else max(1, min(columns, panels))  # all tasks: four and three
    rows = -(-max(panels, 1) // columns)
    width = max(width, _NARROWEST / columns)
    figure = Figure(figsize=(width * columns + 0.4, height * rows + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat[panels:]:
        axis.remove()
    return figure, list(axes.flat[:panels])


def steps(axis: Axes, x: float, y: float | None = None) -> None:
    """Ticks at the steps of a grid of logarithms."""
    axis.xaxis.set_major_locator(MultipleLocator(x))
    if y is not None:
        axis.yaxis.set_major_locator(MultipleLocator(y))
    axis.margins(0.08)


def quiet_grid(axis: Axes) -> None:
    axis.grid(True, color=FAINT, alpha=0.3, linewidth=0.6)
    axis.set_axisbelow(True)


def say(axis: Axes, text: str) -> None:
    """Words in a panel that has nothing to draw."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=FAINT, wrap=True)


def method_legend(figure: Figure, methods: Iterable[str], extra: Sequence[Line2D] = ()) -> None:
    """One legend for all panels, below them; with `extra`, the dashes mean something else than the method."""
    names = [method for method in METHODS if method in set(methods)]
    plain = {"linestyle": "-"} if extra else {}
    lines = [Line2D([], [], label=METHOD_NAMES[name], **{**STYLES[name], **plain}) for name in names]
    handles = [*lines, *extra]
    if handles:
        columns = 6 if figure.get_figwidth() > 8 else 3
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2)


def beside_paper(table: Table, title: str, logarithmic: bool = False) -> Figure:
    """A panel for each row of a table: the paper's numbers as rings, ours as dots, joined by a line."""
    with styled():
        rows = table.rows
        figure, axes = grid(len(rows), height=0.9 + 0.22 * len(table.columns))
        for axis, row in zip(axes, rows, strict=True):
            entries = [entry for entry in table.entries if entry.row == row]
            _panel(axis, row + table.word_of(row), entries, logarithmic)
        handles = [
            Line2D([], [], marker="o", ls="", mfc="none", color=INK, label="paper"),
            Line2D([], [], marker="o", ls="", color=STYLES["fedadam"]["color"], label="ours"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure


def _panel(axis: Axes, title: str, entries: Sequence[Entry], logarithmic: bool) -> None:
    axis.set_title(title)
    if logarithmic:
        axis.set_xscale("log")
    quiet_grid(axis)
    blue = STYLES["fedadam"]["color"]
    for at, entry in enumerate(entries):
        if entry.paper is not None and entry.ours is not None:
            axis.plot([entry.paper, entry.ours], [at, at], color=FAINT, linewidth=1)
        if entry.ours is not None:
            axis.plot([entry.ours], [at], "o", color=blue)
        elif entry.state:
            axis.text(
                0.99,
                at,
                entry.state,
                ha="right",
                va="center",
                fontsize=7,
                transform=axis.get_yaxis_transform(),
            )
        if entry.paper is not None:
            axis.plot([entry.paper], [at], "o", mfc="none", color=INK, markersize=7)
    axis.set_yticks(range(len(entries)), [entry.column for entry in entries])
    axis.set_ylim(len(entries) - 0.5, -0.5)
    axis.set_xlabel(entries[0].unit if entries else "")


class Rendered(NamedTuple):
    """A figure in its three forms."""

    svg: str  # a file of its own: dark on white, the same to the byte each time
    png: bytes
    inline: str  # part of a page: in the page's ink, on nothing


def render(figure: Figure, name: str, label: str) -> Rendered:
    """Draw a figure once for all forms; `name` keeps its ids apart from others on the page."""
    with styled():
        vector, bitmap = io.StringIO(), io.BytesIO()
        figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out now, and doing it again takes seconds
        figure.savefig(bitmap, format="png", dpi=150)
    text = vector.getvalue()
    svg = text.replace(INK, "#222222").replace(PAPER, "#ffffff")
    return Rendered(svg, bitmap.getvalue(), _inline(text, name, label))


def _inline(text: str, name: str, label: str) -> str:
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "none")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', lambda found: found.group(0) + name + "-", text)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', text)
    assert size is not None  # matplotlib writes both
    wide = f'<svg role="img" aria-label="{escape(label)}" style="--wide:{float(size.group(1)):.0f}"'
    return text.replace(size.group(0), "", 1).replace("<svg", wide, 1)
