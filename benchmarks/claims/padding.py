"""Shakespeare: two rules for the outputs of a recurrent layer at padding."""

from __future__ import annotations

from claims import markdown, rules
from claims.results import Results, value_at
from claims.section import Runs, Section, curve_figure, text_at
from fedopt.reports import Interval, paired_difference

PADDING_ROUNDS = (25, 50, 100, 150, 200, 250, 300)


def padding(results: Results) -> Section:
    """Both rules for the outputs at padding."""
    rules_of_padding = {"repeat the last output (default)": "fedavg-0", "zero, as on a GPU": "fedavg-zero-0"}
    found = {label: results.get(f"shakespeare/{name}") for label, name in rules_of_padding.items()}
    records = {label: result.done for label, result in found.items() if result and result.done}
    rows = [
        [label, *(text_at(runs, round) for round in PADDING_ROUNDS), f"{runs[0].info['train_loss']:.3f}"]
        for label, runs in records.items()
    ]
    gap = None
    if len(records) == 2:
        repeat, zero = records.values()
        gap = paired_difference(*({0: r[0].info["value"]} for r in (zero, repeat)))
    verdict = (
        rules.Verdict(
            rules.MEASURED,
            f"zero − repeat {_gap_at(records, PADDING_ROUNDS[0])} points at round {PADDING_ROUNDS[0]}, "
            f"{markdown.difference_text(gap, 'accuracy')} points in rounds 225 to 300 (one seed)",
        )
        if gap
        else rules.not_run("zero" if records else "both rules", len(records), 2)
    )
    colours = ({"color": "#9a7400", "linestyle": "-"}, {"color": "#2a7fc4", "linestyle": "--"})
    styles = dict(zip(rules_of_padding, colours, strict=True))
    header = ["outputs at padding", *map(str, PADDING_ROUNDS), "train loss"]
    panels = {"Shakespeare, FedAvg": records}
    return Section(
        "padding",
        "Shakespeare: two rules for outputs at padding",
        {"padding": markdown.table(header, rows)},
        {"Shakespeare, FedAvg": verdict},
        r"^shakespeare/fedavg(-zero)?-0$",
        curve_figure("padding", "Outputs at padding", panels, styles),
    )


def _gap_at(records: Runs, round: int) -> str:
    repeat, zero = (value_at(runs[0], round) or 0.0 for runs in records.values())
    return markdown.difference_text(Interval(zero - repeat, None, 1), "accuracy")
