"""Style of the figures, shared plot elements, and rendering to SVG, PDF and PNG.

Text and background use two reserved colours. In the files they become dark on white. In the SVG of the page
they become the text colour of the page on a transparent background, so that figures follow the dark mode.
Text stays text in SVG and PDF, so that it can be searched and edited.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from fedopt.reports import ALGORITHM_STYLES
from fedopt_paper.comparison import ComparisonCell, ComparisonTable
from fedopt_paper.published import METHOD_NAMES, METHODS

__all__ = ["LINE_STYLES", "draw_grid_lines", "draw_method_legend", "new_figure", "render", "styled"]

CLIENT_RATE, SERVER_RATE, TAU = r"$\log_{10}\,\eta_l$", r"$\log_{10}\,\eta$", r"$\log_{10}\,\tau$"
TEXT, BACKGROUND, FAINT = "#232425", "#fefdfe", "#8b8c8d"
_MARKERS = {
    "square": "s",
    "circle": "o",
    "triangle-up": "^",
    "diamond": "D",
    "triangle-down": "v",
    "plus": "P",
}
LINE_STYLES: dict[str, dict[str, Any]] = {  # the styles of the reports in the terms of matplotlib
    name: {
        "color": ALGORITHM_STYLES[name].colour,
        "marker": _MARKERS[ALGORITHM_STYLES[name].symbol],
        "linestyle": (0, tuple(length / 2 for length in ALGORITHM_STYLES[name].dash)),  # in line widths
    }
    for name in METHODS
}
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fedopt",  # identical figures give identical files
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # embedded TrueType
    "font.family": ["DejaVu Sans"],  # included in matplotlib, so all machines render the same
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlecolor": TEXT,
    "axes.edgecolor": FAINT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": BACKGROUND,
    "axes.facecolor": "none",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "axes.unicode_minus": True,
}

PNG_DPI = 300  # what journals ask for
FONT = "'DejaVu Sans'"  # as matplotlib writes it into SVG
_MIN_WIDTH = 6.0  # inches; titles and legends need this width


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style of the figures. It is a context manager and a decorator."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(
    panels: int,
    title: str,
    columns: int = 3,
    width: float = 2.9,
    height: float = 2.4,
    min_width: float = _MIN_WIDTH,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with a title and `panels` panels of the given size in inches."""
    columns = 4 if panels == 7 else max(1, min(columns, panels))  # seven tasks: four and three
    rows = -(-max(panels, 1) // columns)
    width = max(width, min_width / columns)
    figure = Figure(figsize=(width * columns + 0.4, height * rows + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[panels:]:
        axis.remove()
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure, list(axes.flat[:panels])


@styled()
def add_scale(figure: Figure, description: str) -> None:
    """Write the scale of the reproduction below the title, so that a copied image shows it."""
    figure.suptitle(f"{figure.get_suptitle()}\n{description}", x=0.01, ha="left", fontweight="bold")


def set_grid_ticks(axis: Axes, x: float, y: float | None = None) -> None:
    """Place ticks at the steps of a hyperparameter grid."""
    axis.xaxis.set_major_locator(MultipleLocator(x))
    if y is not None:
        axis.yaxis.set_major_locator(MultipleLocator(y))
    axis.margins(0.08)


def draw_grid_lines(axis: Axes) -> None:
    axis.grid(True, color=FAINT, alpha=0.3, linewidth=0.6)
    axis.set_axisbelow(True)


def draw_message(axis: Axes, text: str) -> None:
    """Write a message into an empty panel."""
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=FAINT, wrap=True)


@styled()
def draw_method_legend(
    figure: Figure, methods: Iterable[str], styles: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Draw one legend below all panels. `styles` are further lines; dashes then mean no method."""
    names = [method for method in METHODS if method in set(methods)]
    solid = {"linestyle": "-"} if styles else {}
    handles = [Line2D([], [], label=METHOD_NAMES[name], **{**LINE_STYLES[name], **solid}) for name in names]
    for label, style in (styles or {}).items():
        handles.append(Line2D([], [], color=TEXT, marker="o", label=label, **style))
    if handles:
        columns = 6 if figure.get_figwidth() > 8 else 3
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2)


@styled()
def draw_comparison(table: ComparisonTable, title: str, log_scale: bool = False) -> Figure:
    """Draw one panel per row of a table: the paper's numbers as circles, ours as connected dots."""
    rows = table.rows
    figure, axes = new_figure(len(rows), title, height=0.9 + 0.22 * len(table.columns))
    for axis, row in zip(axes, rows, strict=True):
        axis.set_title(row + table.row_suffix(row))
        if log_scale:
            axis.set_xscale("log")
        draw_grid_lines(axis)
        _draw_row(axis, [cell for cell in table.cells if cell.row == row])
    handles = [
        Line2D([], [], marker="o", ls="", mfc="none", color=TEXT, label="paper"),
        Line2D([], [], marker="o", ls="", color=LINE_STYLES["fedadam"]["color"], label="ours"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw_row(axis: Axes, cells: Sequence[ComparisonCell]) -> None:
    for y, cell in enumerate(cells):
        if cell.difference is not None and cell.paper is not None and cell.ours is not None:
            axis.plot([cell.paper, cell.ours], [y, y], color=FAINT, linewidth=1)
        if cell.ours is not None:
            axis.plot([cell.ours], [y], "o", color=LINE_STYLES["fedadam"]["color"])
        elif cell.state:
            right = axis.get_yaxis_transform()
            axis.text(0.99, y, cell.state, ha="right", va="center", fontsize=7, transform=right)
        if cell.paper is not None:
            axis.plot([cell.paper], [y], "o", mfc="none", color=TEXT, markersize=7)
    axis.set_yticks(range(len(cells)), [cell.column for cell in cells])
    axis.set_ylim(len(cells) - 0.5, -0.5)
    axis.set_xlabel(cells[0].unit if cells else "")


class RenderedFigure(NamedTuple):
    """A figure in four formats."""

    svg: str  # a file, dark on white, with reproducible bytes
    pdf: bytes
    png: bytes
    inline_svg: str  # an element for the page, in the text colour of the page
    width: float  # in points


@styled()
def render_svg(figure: Figure) -> str:
    """Render a figure as an SVG file, dark on white, with reproducible bytes."""
    return _dark_on_white(_svg_text(figure))


def _svg_text(figure: Figure) -> str:
    """Return SVG with the reserved colours."""
    vector = io.StringIO()
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    return vector.getvalue().replace(FONT, f"{FONT}, Verdana, sans-serif")  # where the font is not installed


def _dark_on_white(svg: str) -> str:
    return svg.replace(TEXT, "#222222").replace(BACKGROUND, "#ffffff")


@styled()
def render(figure: Figure, name: str) -> RenderedFigure:
    """Render a figure. `name` makes the ids in the inline SVG unique on the page."""
    document, bitmap = io.BytesIO(), io.BytesIO()
    text = _svg_text(figure)
    figure.set_layout_engine("none")  # the layout is done; repeating it takes seconds
    figure.savefig(document, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    figure.savefig(bitmap, format="png", dpi=PNG_DPI)
    inline = text[text.index("<svg") :].replace(TEXT, "currentColor").replace(BACKGROUND, "none")
    inline = re.sub(r"<metadata>.*?</metadata>", "", inline, flags=re.DOTALL)
    inline = re.sub(r'(\bid="|url\(#|href="#)', lambda match: match.group(0) + name + "-", inline)
    size = re.search(r' *width="([\d.]+)pt" height="[\d.]+pt"', inline)
    assert size is not None  # matplotlib writes both
    inline = inline.replace(size.group(0), "", 1)
    return RenderedFigure(
        _dark_on_white(text), document.getvalue(), bitmap.getvalue(), inline, float(size.group(1))
    )
