"""Compare five federated optimizers on sparse and on dense data: make demo

The runs are kept in OUT, and finished ones are not repeated. OUT/index.html shows the results. OUT/demo.svg
is their figure; --figure docs/figures/demo.svg also writes that of the README.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedopt
from fedopt.reports import (
    Comparison,
    Summary,
    describe_margin,
    headline,
    mean_curve,
    metric_unit,
    render_template,
)
from fedopt_paper import plotting
from fedopt_paper.published import METHOD_NAMES

ALGORITHMS = ["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi"]
ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
SEEDS = range(3)


class Part(NamedTuple):
    """One comparison of the demo."""

    kind: str
    task: str
    rounds: int
    config: dict[str, Any]
    executor: str
    rates: str  # where the learning rates come from
    what: str


PARTS = (
    Part(
        "Sparse",
        "so_lr",
        rounds=50,
        config={"eval.every": 5, "eval.last_every": 5},
        executor="processes",
        rates="the best ones in the paper",
        what="Tag prediction from bags of words. Recall@5 is the share of the true tags that are among the "
        "five most likely ones. A client has few of the 10,000 words, so most weights are updated in few "
        "rounds. Adaptive methods take larger steps for such weights. FedAdam and FedYogi fall after round "
        "10 because of their momentum: with server.beta1=0, FedAdam does not fall.",
    ),
    Part(
        "Dense",
        "synthetic_lr",
        rounds=200,
        config={"data.beta": 0.0, "client.steps": 10, "eval.every": 10, "eval.last_every": 10},
        executor="vectorised",
        rates="the defaults of the task, from our own sweeps; this task is not in the paper",
        what="Classification of vectors of 60 numbers. All weights are updated in every round."
        " Of five settings that were tried, this is the one in which all methods converge. In the other four,"
        " the methods differ by 4 to 6 points.",
    ),
)


class Section(NamedTuple):
    """A finished comparison and its figure as SVG."""

    part: Part
    comparison: Comparison
    figure: str

    @property
    def headline(self) -> str:
        return with_paper_names(headline(self.comparison))


def train(part: Part, out: Path) -> Comparison:
    """Train all algorithms with all seeds."""
    group = fedopt.compare(
        part.task,
        ALGORITHMS,
        rounds=part.rounds,
        seeds=SEEDS,
        config=part.config,
        executor=part.executor,
        out=out / part.task,
    )
    return group.comparison()


def describe_difference(first: Summary, second: Summary) -> str:
    """Return "40.8 ± 4.1 points of recall@5 above", from the seeds that both have."""
    difference = first.difference(second, first.result_name)
    assert difference is not None, "both have the same seeds"
    unit = metric_unit(first.record.metric)
    margin = difference._replace(mean=abs(difference.mean))
    direction = "above" if difference.mean >= 0 else "below"
    return f"{describe_margin(unit, margin)}{unit.difference_unit} of {unit.name} {direction}"


def describe_demo(sparse: Comparison, dense: Comparison) -> str:
    """Return the first sentence of the page: what the demo shows, and how certain it is."""
    adaptive = [summary for summary in sparse.summaries if summary.label in ADAPTIVE]
    others = [summary for summary in sparse.summaries if summary.label not in ADAPTIVE]
    difference = describe_difference(adaptive[-1], others[0])
    if difference.endswith("above"):
        text = (
            f"every adaptive method ({list_names(adaptive)}) is at least {difference} every other method "
            f"({list_names(others)})"
        )
    else:
        text = (
            f"the lowest adaptive method ({list_names(adaptive[-1:])}) is {difference} the best other method "
            f"({list_names(others[:1])})"
        )
    best, worst = dense.summaries[0], dense.summaries[-1]
    return (
        f"After {rounds(sparse)} rounds on sparse data, {text}. "
        f"After {rounds(dense)} rounds on dense data, the best method ({list_names([best])}) is "
        f"{describe_difference(best, worst)} the worst ({list_names([worst])}). "
        f"These are means of {len(SEEDS)} seeds with 95 % intervals."
    )


def list_names(summaries: Sequence[Summary]) -> str:
    """Return the names of methods as in the paper."""
    return ", ".join(METHOD_NAMES[summary.label] for summary in summaries)


def with_paper_names(text: str) -> str:
    """Replace the names of methods in a sentence by those of the paper, which the figure shows."""
    return re.sub(rf"\b({'|'.join(ALGORITHMS)})\b", lambda match: METHOD_NAMES[match.group()], text)


def rounds(comparison: Comparison) -> int:
    """Return the number of rounds of the runs, which is the same for all."""
    return comparison.best.record.rounds


def draw_panel(axis: Axes, part: Part, comparison: Comparison) -> None:
    """Draw the mean of each method over the seeds, with its 95 % confidence interval."""
    unit = metric_unit(comparison.metric)
    for summary in comparison.summaries:
        curve = mean_curve([record.curve("test", comparison.metric) for record in summary.group.counted])
        style = plotting.LINE_STYLES[summary.label]
        means = [value * unit.factor for value in curve.means]
        axis.plot(curve.rounds, means, **style)
        if curve.half_widths:
            halves = [half * unit.factor for half in curve.half_widths]
            low = [mean - half for mean, half in zip(means, halves, strict=True)]
            high = [mean + half for mean, half in zip(means, halves, strict=True)]
            axis.fill_between(curve.rounds, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axis.set_title(f"{part.kind}: {part.task}")
    axis.set_xlabel("round")
    axis.set_ylabel(f"{unit.name} ({unit.suffix.strip()})" if unit.suffix else unit.name)
    axis.set_ylim(bottom=0)
    plotting.draw_grid_lines(axis)


@plotting.styled()
def draw_figure(comparisons: Sequence[tuple[Part, Comparison]], title: str) -> Figure:
    """Draw one panel per comparison."""
    figure, axes = plotting.new_figure(len(comparisons), title, width=4.0, height=2.6, min_width=4.0)
    for axis, (part, comparison) in zip(axes, comparisons, strict=True):
        draw_panel(axis, part, comparison)
    plotting.draw_method_legend(figure, ALGORITHMS)
    return figure


def render_page(lead: str, sections: list[Section]) -> str:
    """Return the page as HTML. It has no script and makes no requests."""
    here = Path(__file__).parent
    return render_template(here, "demo.html.j2", lead=lead, sections=sections, version=fedopt.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="directory of the runs and the page")
    parser.add_argument("--figure", type=Path, help="another file for the figure")
    options = parser.parse_args()
    out: Path = options.out
    comparisons = [(part, train(part, out)) for part in PARTS]
    lead = describe_demo(*(comparison for _, comparison in comparisons))
    sections = []
    for part, comparison in comparisons:
        figure = plotting.render(draw_figure([(part, comparison)], ""), part.task)
        sections.append(Section(part, comparison, figure.inline_svg))
    (out / "index.html").write_text(render_page(lead, sections))
    figure = draw_figure(comparisons, "Five federated optimizers, mean and 95 % interval of three seeds")
    for file in filter(None, (out / "demo.svg", options.figure)):
        file.write_text(plotting.render(figure, "demo").svg)
    print(lead)
    for section in sections:
        print(f"{section.part.task}: {section.headline}")
    print(f"page: {out / 'index.html'}")


if __name__ == "__main__":
    main()
