"""Adaptive methods against FedAvg and FedAvgM on dense tasks: text, digits, characters, autoencoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from claims import markdown, rules
from claims.baselines import CODE_UNITS, load_baselines
from claims.figures import Axis
from claims.results import Results, value_at
from claims.rules import NON_ADAPTIVE
from claims.section import (
    Runs,
    Section,
    curve_figure,
    difference,
    divergence,
    finished,
    mean_interval,
    text_at,
    values_at,
)
from fedopt.formatting import ABSENT
from fedopt.reports import Interval, confidence_interval, log10, paired_difference
from fedopt.runs.records import RunRecord
from fedopt_paper.published import METHOD_NAMES, METHODS, paper_settings

JUDGED = ("fedadam", "fedyogi")  # the paper claims it for these two
AUTOENCODER_ROUNDS = (50, 100, 150, 200)
EARLY_ROUNDS = (25, 50, 75, 100)  # of Shakespeare
TEXT_ROUNDS = tuple(range(25, 301, 25))  # at which Shakespeare was evaluated until round 300
SEEDED_ROUND, START_ROUND = 300, 200  # of the autoencoder; some methods have several seeds until round 300
CHOSEN_RATE = "without seed 0, with which the rate was chosen; FedAvgM and FedAvg have the paper's rates"
BASELINES = {"mean image": "images", f"PCA, {CODE_UNITS} components": "components"}


AXES = {"Shakespeare, real text": Axis(low=40), "digits, small network": Axis(low=85)}


def at_least_as_good(results: Results) -> Section:
    """All methods on the dense tasks."""
    text = finished(results, r"shakespeare/[a-z]+-\d")
    long = finished(results, r"shakespeare/[a-z]+-0-1500")
    digits = finished(results, r"digits/[a-z]+-\d")
    small = finished(results, r"writers/seeds/constant/[a-z]+")
    characters = finished(results, r"characters/.*")
    autoencoder = finished(results, r"autoencoder/[a-z]+-\d")
    tuned = finished(results, "autoencoder/tuned/fedyogi")
    errors = _joined(results, r"autoencoder/(seeds/)?[a-z]+-\d")
    # The server rate was chosen with seed 0, so the other seeds decide.
    tuned_errors = {m: _without_first_seed(errors[m]) for m in NON_ADAPTIVE if m in errors}
    for method, runs in _joined(results, r"autoencoder/tuned_seeds/[a-z]+-\d").items():
        tuned_errors[method] = _without_first_seed(runs)
    early = {m: runs for m in METHODS if (runs := _first_seed(text.get(m, [])))}
    verdicts = {
        "Shakespeare, 1,500 rounds": _judged(long),
        "Shakespeare, rounds 225 to 300": _judged(text),
        "Shakespeare, rounds 225 to 300, FedYogi against FedAvg": _judged_seeds(text),
        "Shakespeare, start of training, FedYogi against FedAvg": _judged_start(text),
        "Shakespeare, FedAdagrad is the fastest until round 100": rules.judge_fastest(
            {m: [value_at(run, t) or 0.0 for t in TEXT_ROUNDS] for m, [run] in early.items()},
            "fedadagrad",
            len(EARLY_ROUNDS),
        ),
        "digits, round 200": _judged(digits, "last"),
        "digits, small network, 1,500 rounds": _judged(small),
        "characters, synthetic, 300 rounds": rules.limit_to_weaker(_judged(characters), rules.SYNTHETIC_DATA),
        "autoencoder of digits, the paper's rates, 1,000 rounds": rules.judge_errors(
            _means(autoencoder), JUDGED
        ),
        **_judged_starts("the paper's rates", errors),
        **{
            label: rules.limit_to_weaker(verdict, CHOSEN_RATE)
            for label, verdict in _judged_starts(
                "server rate 0.01 for FedAdam and FedYogi", tuned_errors
            ).items()
        },
        "autoencoder of digits, smaller server rate for FedYogi, 1,000 rounds": rules.judge_errors(
            {m: e for m, e in _means(autoencoder).items() if m in NON_ADAPTIVE} | _means(tuned), ("fedyogi",)
        ),
    }
    panels = {
        "Shakespeare, real text": text | long,
        "Shakespeare, until round 300": text,
        "digits, real handwriting": digits,
        "digits, small network": small,
        "autoencoder, the paper's rates": autoencoder,
        "autoencoder, FedYogi with server rate 0.01": {m: autoencoder.get(m, []) for m in NON_ADAPTIVE}
        | tuned,
        "characters, synthetic": characters,
    }
    tables = {
        "text": _text_table(text, long),
        "early": _early_table(early),
        "early_gaps": _early_gaps(text),
        "images": _images_table(results, digits, small, characters, autoencoder),
        "errors": _error_table(autoencoder, tuned),
        "rates": _autoencoder_rates(results),
        "fedavgm_200": _error_at(autoencoder["fedavgm"][0], 200) if "fedavgm" in autoencoder else ABSENT,
        "components": _baseline("components"),
        **_paper_gap(long),
        "tuned": markdown.value_text(mean_interval(tuned.get("fedyogi", [])), "mse") if tuned else "",
        "tuned_ratio": _ratio(tuned.get("fedyogi", []), autoencoder.get("fedavgm", [])),
    }
    return Section(
        "dense",
        "FedAdam and FedYogi are comparable or better on dense tasks",
        tables,
        verdicts,
        r"^shakespeare/[a-z]+-\d|^digits/[a-z]+-\d|^writers/seeds/constant|^characters|^autoencoder",
        curve_figure("dense", "Dense tasks", _ordered(panels), None, AXES),
    )


def _judged(runs: Runs, name: str = "value") -> rules.Verdict:
    """Compare with the better of the non-adaptive methods.

    If one of the four methods has not run, the verdict is "holds weaker" at most.
    """
    means = {m: mean_interval(runs.get(m, []), name) for m in (*JUDGED, *NON_ADAPTIVE)}
    known = {method: mean for method, mean in means.items() if mean is not None}
    missing = ", ".join(METHOD_NAMES[method] for method in means if method not in known)
    others, judged = ([m for m in group if m in known] for group in (NON_ADAPTIVE, JUDGED))
    if not others or not judged:
        return rules.not_run(missing, len(known), len(means))
    best = max(others, key=lambda method: known[method].mean)
    verdict = rules.judge_at_least_as_good({m: difference(runs[m], runs[best], name) for m in judged}, best)
    if not missing:
        return verdict
    return rules.limit_to_weaker(verdict, f"not run: {missing}")


def _judged_seeds(text: Runs) -> rules.Verdict:
    """Compare FedYogi with FedAvg, which have several seeds. FedAvgM is better than FedAvg and has one."""
    gap = difference(text.get("fedyogi", []), text.get("fedavg", []))
    verdict = rules.judge_at_least_as_good({"fedyogi": gap}, "fedavg")
    return rules.limit_to_weaker(verdict, "FedAvgM, which is better here, has one seed")


def _judged_start(text: Runs) -> rules.Verdict:
    """Compare FedYogi with FedAvg at the first evaluation: "throughout" may include the start of training."""
    first = EARLY_ROUNDS[0]
    fedyogi, fedavg = (values_at(text.get(method, []), first) for method in ("fedyogi", "fedavg"))
    verdict = rules.judge_at_least_as_good({"fedyogi": paired_difference(fedyogi, fedavg)}, "fedavg")
    return verdict._replace(reason=f"At round {first}: {verdict.reason}")


def _joined(results: Results, pattern: str) -> Runs:
    """Return the runs of the autoencoder that are judged or compared."""
    runs = finished(results, pattern)
    return {method: runs[method] for method in (*JUDGED, *NON_ADAPTIVE) if method in runs}


def _judged_starts(rates: str, runs: Runs) -> dict[str, rules.Verdict]:
    """Judge the autoencoder at rounds for which several seeds have run."""
    faster = f"autoencoder of digits, {rates}, faster than FedAvgM at round {START_ROUND}"
    return {
        f"autoencoder of digits, {rates}, round {SEEDED_ROUND}": _judged_ratios(runs, SEEDED_ROUND),
        faster: _judged_ratios(runs, START_ROUND, ("fedavgm",), 1.0),
    }


def _judged_ratios(
    runs: Runs, round: int, others: Sequence[str] = NON_ADAPTIVE, limit: float = 1 + rules.COMPARABLE_ERROR
) -> rules.Verdict:
    """Compare errors at a round with those of the better of the other methods, paired by seed."""
    errors = {method: values_at(runs.get(method, []), round) for method in (*JUDGED, *NON_ADAPTIVE)}
    reference = min(others, key=lambda m: fmean(errors[m].values()) if errors[m] else math.inf)
    ratios = {
        m: confidence_interval([errors[m][seed] / errors[reference][seed] for seed in sorted(common)])
        if (common := errors[m].keys() & errors[reference].keys())
        else None
        for m in JUDGED
    }
    return rules.judge_error_ratios(ratios, reference, f"at round {round}", limit)


def _first_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.info["seed"] == 0]


def _without_first_seed(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.info["seed"] != 0]


def _early_table(early: Runs) -> str:
    rows = [[METHOD_NAMES[m], *(text_at(runs, t) for t in EARLY_ROUNDS)] for m, runs in early.items()]
    return markdown.table(["", *(f"round {t}" for t in EARLY_ROUNDS)], rows)


def _early_gaps(text: Runs) -> str:
    """Return FedYogi minus FedAvg at early rounds, over seeds."""
    gaps = {
        t: paired_difference(values_at(text.get("fedyogi", []), t), values_at(text.get("fedavg", []), t))
        for t in EARLY_ROUNDS
    }
    return ", ".join(f"{markdown.difference_text(gap, 'accuracy')} (round {t})" for t, gap in gaps.items())


def _error_table(autoencoder: Runs, tuned: Runs) -> str:
    """Return the errors of the autoencoder by round."""
    rounds = (100, 300, 500, 800, 1000)
    runs = {METHOD_NAMES[m]: autoencoder[m] for m in METHODS if m in autoencoder}
    if tuned:
        runs |= {"FedYogi, server rate 0.01": tuned["fedyogi"]}
    rows = [[name, *(_error_at(run, t) for t in rounds)] for name, [run] in runs.items()]
    return markdown.table(["MSE × 1000", *(f"round {t:,}" for t in rounds)], rows)


def _ratio(records: Sequence[RunRecord], reference: Sequence[RunRecord]) -> str:
    errors = [mean_interval(records), mean_interval(reference)]
    return f"{errors[0].mean / errors[1].mean:.2f}" if errors[0] and errors[1] else ABSENT


def _text_table(text: Runs, long: Runs) -> str:
    rows = [
        [
            METHOD_NAMES[method],
            _paper("shakespeare", method),
            *(text_at(text.get(method, []), round) for round in (100, 300)),
            markdown.value_text(mean_interval(text.get(method, [])), "accuracy"),
            *(text_at(long.get(method, []), round) for round in (600, 1000)),
            markdown.value_text(mean_interval(long.get(method, [])), "accuracy"),
        ]
        for method in METHODS
    ]
    header = ["", "paper", "round 100", "round 300", "225 to 300", "round 600", "round 1,000"]
    return markdown.table([*header, "1,425 to 1,500"], rows)


def _images_table(results: Results, digits: Runs, small: Runs, characters: Runs, autoencoder: Runs) -> str:
    lost = {m for m in METHODS if _has_diverged(results, f"digits/{m}-0")}
    rows = [
        [
            METHOD_NAMES[method],
            *(["diverged", ABSENT] if method in lost else _with_margin(digits, method, "last")),
            *_with_margin(small, method, "value"),
            markdown.value_text(mean_interval(characters.get(method, [])), "accuracy"),
            markdown.value_text(mean_interval(autoencoder.get(method, [])), "mse"),
        ]
        for method in METHODS
    ]
    if autoencoder:
        rows += [[name, *[ABSENT] * 5, _baseline(key)] for name, key in BASELINES.items()]
    difference = "difference from FedAvg"
    header = ["", "digits, %", difference, "small network, %", difference, "characters, %"]
    return markdown.table([*header, "autoencoder, MSE × 1000"], rows)


def _has_diverged(results: Results, name: str) -> bool:
    return name in results and any(divergence(record) is not None for record in results[name].records)


def _list(names: Iterable[str]) -> str:
    """Return names as "A, B and C"."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _paper_gap(long: Runs) -> dict[str, str]:
    """Return the methods for which the paper prints an accuracy, and the largest difference from it."""
    published = paper_settings("shakespeare").results
    means = {
        method: mean_interval(long[method]) for method in METHODS if method in long and method in published
    }
    gaps = [abs(mean.mean * 100 - published[method]) for method, mean in means.items() if mean]
    methods = _list(METHOD_NAMES[method] for method in means)
    return {"long_methods": methods, "long_gap": f"{max(gaps):.1f}" if gaps else ABSENT}


def _baseline(key: str) -> str:
    return markdown.value_text(Interval(load_baselines()[key], None, 1), "mse")


def _with_margin(runs: Runs, method: str, name: str) -> list[str]:
    """Return the accuracy of a method and its difference to FedAvg."""
    margin = None if method == "fedavg" else difference(runs.get(method, []), runs.get("fedavg", []), name)
    mean = mean_interval(runs.get(method, []), name)
    return [markdown.value_text(mean, "accuracy"), markdown.difference_text(margin, "accuracy")]


def _autoencoder_rates(results: Results) -> str:
    """Return the errors after 200 rounds with other rates, mathematics or epochs than the paper's."""
    rows = [
        [
            METHOD_NAMES[record.label],
            record.config["variant"],
            str(record.config["client.epochs"]),
            *(markdown.number(log10(record.config[key])) for key in ("client.lr", "server.lr")),
            *(_error_at(record, round) for round in AUTOENCODER_ROUNDS),
        ]
        for name in ("rates", "as_run", "fedadam_rates", "two_epochs")
        if f"autoencoder/{name}" in results
        for record in results[f"autoencoder/{name}"].done
    ]
    header = ["", "update rule", "epochs", "log10 client rate", "log10 server rate"]
    rows.sort(key=lambda row: (row[:4], float(row[4].replace("−", "-"))))
    return markdown.table([*header, *(f"round {round}" for round in AUTOENCODER_ROUNDS)], rows)


def _error_at(record: RunRecord, round: int) -> str:
    value = value_at(record, round)
    return ABSENT if value is None else f"{value * 1000:.1f}"


def _ordered(panels: Mapping[str, Runs]) -> dict[str, dict[str, Sequence[RunRecord]]]:
    return {name: {m: runs[m] for m in METHODS if runs.get(m)} for name, runs in panels.items()}


def _means(runs: Runs) -> dict[str, float]:
    means = {method: mean_interval(records) for method, records in runs.items()}
    return {method: interval.mean for method, interval in means.items() if interval is not None}


def _paper(task: str, method: str) -> str:
    result = paper_settings(task).results.get(method)
    return ABSENT if result is None else f"{result:.1f}"
