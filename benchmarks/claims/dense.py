"""Claims about dense tasks: text, digits, characters, autoencoder, and decay of the client rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims import markdown, rules
from claims.results import Results, value_at
from claims.section import Section, curve_figure, difference, finished, mean_interval
from fedopt.analysis.seeds import Interval, confidence_interval, paired_difference
from fedopt.formatting import ABSENT
from fedopt.reproduction.published import METHOD_NAMES, METHODS, OPTIMIZERS, paper_settings
from fedopt.runs.records import RunRecord

JUDGED = ("fedadam", "fedyogi")  # the paper claims it for these two
PADDING_ROUNDS = (25, 50, 100, 150, 200, 250, 300)
Runs = Mapping[str, Sequence[RunRecord]]  # by method


def at_least_as_good(results: Results) -> Section:
    """All methods on the dense tasks."""
    long = finished(results, r"shakespeare/[a-z]+-0-1500")
    text = finished(results, r"shakespeare/[a-z]+-\d")
    earlier = finished(results, "earlier/shakespeare")
    older = {m: runs for m, runs in earlier.items() if m not in text}
    text |= {m: runs for m, runs in older.items() if value_at(runs[0], 300)}
    digits = finished(results, r"digits/[a-z]+-\d")
    characters = finished(results, r"characters/.*")
    autoencoder = finished(results, r"autoencoder/.*")
    text_rows = [
        [
            METHOD_NAMES[method],
            _paper("shakespeare", method),
            *(
                cell + (" *" if method in older and cell != ABSENT else "")
                for cell in (
                    _at(text.get(method, older.get(method, [])), 100),
                    _at(text.get(method, []), 300),
                    markdown.value_text(mean_interval(text.get(method, [])), "accuracy"),
                )
            ),
            markdown.value_text(mean_interval(long.get(method, [])), "accuracy"),
        ]
        for method in METHODS
    ]
    other_rows = [
        [
            METHOD_NAMES[method],
            markdown.value_text(mean_interval(digits.get(method, []), "last"), "accuracy"),
            markdown.difference_text(
                difference(digits.get(method, []), digits.get("fedavg", []), "last"), "accuracy"
            )
            if method != "fedavg"
            else ABSENT,
            markdown.value_text(mean_interval(characters.get(method, [])), "accuracy"),
            markdown.value_text(mean_interval(autoencoder.get(method, [])), "mse"),
        ]
        for method in METHODS
    ]
    verdicts = {
        "Shakespeare, rounds 200 to 300": rules.judge_at_least_as_good(_differences(text)),
        "Shakespeare, 1,500 rounds": rules.judge_at_least_as_good(_differences(long)),
        "digits, round 200": rules.judge_at_least_as_good(_differences(digits, "last")),
        "characters, synthetic, 300 rounds": rules.judge_at_least_as_good(_differences(characters)),
    }
    panels = {"Shakespeare, real text": text, "digits, real handwriting": digits}
    tables = {
        "text": markdown.table(
            ["", "paper", "round 100", "round 300", "200 to 300", "1,400 to 1,500"], text_rows
        ),
        "images": markdown.table(["", "digits", "− FedAvg", "characters", "autoencoder"], other_rows),
    }
    return Section(
        "dense",
        "Adaptive methods are at least as good on dense tasks",
        tables,
        verdicts,
        r"^shakespeare/[a-z]+-\d|^digits/[a-z]+-\d|^characters|^autoencoder",
        curve_figure("dense", "Dense tasks", _ordered(panels)),
    )


def _ordered(panels: Mapping[str, Runs]) -> dict[str, dict[str, Sequence[RunRecord]]]:
    return {name: {m: runs[m] for m in METHODS if m in runs} for name, runs in panels.items()}


def _differences(runs: Runs, name: str = "value") -> dict[str, Interval | None]:
    return {method: difference(runs.get(method, []), runs.get("fedavg", []), name) for method in JUDGED}


def _paper(task: str, method: str) -> str:
    result = paper_settings(task).results.get(method)
    return ABSENT if result is None else f"{result:.1f}"


def _at(records: Sequence[RunRecord], round: int) -> str:
    values = [value for record in records if (value := value_at(record, round)) is not None]
    return markdown.value_text(confidence_interval(values) if values else None, "accuracy")


def padding(results: Results) -> Section:
    """Both rules for the outputs at padding."""
    rules_of_padding = {"repeat the last output (default)": "fedavg-0", "zero, as on a GPU": "fedavg-zero-0"}
    found = {label: results.get(f"shakespeare/{name}") for label, name in rules_of_padding.items()}
    records = {label: result.done for label, result in found.items() if result and result.done}
    rows = [
        [label, *(_at(runs, round) for round in PADDING_ROUNDS), f"{runs[0].info['train_loss']:.3f}"]
        for label, runs in records.items()
    ]
    gap = None
    if len(records) == 2:
        repeat, zero = records.values()
        gap = paired_difference(*({0: r[0].info["value"]} for r in (zero, repeat)))
    verdict = (
        rules.Verdict(
            "measured", f"zero − repeat {markdown.difference_text(gap, 'accuracy')} points (one seed)"
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
        {"Shakespeare, rounds 200 to 300": verdict},
        r"^shakespeare/fedavg(-zero)?-0$",
        curve_figure("padding", "Outputs at padding", panels, styles),
    )


def decay(results: Results) -> Section:
    """Exponential decay of the client rate, and centralized training."""
    constant = {m: finished(results, f"decay/{m}-constant").get(m, []) for m in OPTIMIZERS}
    decayed = {m: finished(results, f"decay/{m}-decay").get(m, []) for m in OPTIMIZERS}
    central = mean_interval(finished(results, "decay/centralized").get("centralized", []), "last")
    rows = [
        [
            METHOD_NAMES[method],
            *(markdown.value_text(mean_interval(runs[method]), "accuracy") for runs in (constant, decayed)),
            markdown.difference_text(difference(decayed[method], constant[method]), "accuracy"),
        ]
        for method in OPTIMIZERS
    ]
    gaps = {}
    for method in OPTIMIZERS:
        ends = [mean_interval(runs[method]) for runs in (constant, decayed)]
        if central and ends[0] and ends[1]:
            gaps[method] = (central.mean - ends[0].mean, central.mean - ends[1].mean)
    gains = {method: difference(decayed[method], constant[method]) for method in OPTIMIZERS}
    rows.append(["Centralized", markdown.value_text(central, "accuracy"), ABSENT, ABSENT])
    return Section(
        "decay",
        "Decay of the client rate helps and approaches centralized training",
        {"decay": markdown.table(["", "constant", "decay", "difference"], rows)},
        {"digits, 600 rounds": rules.judge_decay(gains, gaps)},
        "^decay/",
    )
