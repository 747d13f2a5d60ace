"""SCAFFOLD against FedAvg, with clients that are rarely or often revisited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from claims import markdown, rules
from claims.baselines import load_baselines
from claims.label_skew import POPULATIONS
from claims.results import Results, cpu_type
from claims.section import Runs, Section, curve_figure, difference, divergence, finished, mean_interval
from claims.selection import joined_records, method_grids
from fedopt.formatting import ABSENT
from fedopt.reports import Interval, RateTrial, log10
from fedopt_paper.published import METHOD_NAMES

FEDAVGS_RATES = "FedAvg's rates"


def scaffold(results: Results) -> Section:
    """Compare SCAFFOLD with FedAvg on all data."""
    trials = {name: _trials(results, f"scaffold/{name}", f"scaffold/{name}_more") for name in POPULATIONS}
    skewed = {name: _most_accurate(found) for name, found in trials.items()}
    diverged = _divergence(results, "digits/scaffold-0")
    text = finished(results, r"shakespeare/[a-z]+-\d")
    long_text = finished(results, r"shakespeare/[a-z]+-\d-1500")
    digits = finished(results, r"digits/[a-z]+-\d")
    characters = finished(results, r"characters/[a-z]+-0")
    autoencoder = finished(results, r"autoencoder/[a-z]+-0")
    tuned = {**digits, "scaffold": trained_best(results, "scaffold/digits").get("scaffold", [])}
    writers = trained_best(results, "writers/scaffold")
    rows = [
        *([_describe(name), *_row(runs), _client_rates(trials[name], runs)] for name, runs in skewed.items()),
        ["Shakespeare, 1,119 roles, 300 rounds", *_row(text), ABSENT],
        ["Shakespeare, 1,119 roles, 1,500 rounds", *_row(long_text), ABSENT],
        ["characters, synthetic, 300 rounds, FedAvg's rates", *_row(characters), ABSENT],
        ["digits, 539 writers, small network, 1,500 rounds", *_row(writers), _rates(writers)],
        ["digits, 539 writers, 200 rounds, FedAvg's rates", *_row(digits, "last", diverged), ABSENT],
        [
            "digits, 539 writers, 200 rounds, smaller client rate for SCAFFOLD",
            *_row(tuned, "last"),
            _rates(tuned),
        ],
    ]
    verdicts = {
        _describe("few"): _measured(skewed["few"]),
        _describe("few_small"): _measured(skewed["few_small"]),
        _describe("many"): _judged(skewed["many"], "2,000 clients"),
        "SCAFFOLD on Shakespeare, 300 rounds": _judged(text, "Shakespeare", FEDAVGS_RATES),
        "SCAFFOLD on Shakespeare, 1,500 rounds": _judged(long_text, "Shakespeare", FEDAVGS_RATES),
        "characters, synthetic, 300 rounds": rules.limit_to_weaker(
            _judged_characters(characters), rules.SYNTHETIC_DATA
        ),
        "autoencoder of digits, 1,000 rounds": rules.judge_error_not_better(
            mean_interval(autoencoder.get("scaffold", [])),
            mean_interval(autoencoder.get("fedavg", [])),
            load_baselines()["images"],
        ),
        "digits by writer, small network": _judged(writers, "539 writers"),
        "digits by writer, FedAvg's rates": _judged_digits(digits, diverged),
        "digits by writer, smaller client rate": rules.judge_not_better(
            _difference(tuned, "last"), "539 writers", "the better of two client rates"
        ),
    }
    panels = {_describe(name): runs for name, runs in skewed.items()}
    panels["539 writers, small network"] = writers
    header = ["data", "FedAvg", "SCAFFOLD", "SCAFFOLD − FedAvg", "log10 client rates"]
    return Section(
        "scaffold",
        "SCAFFOLD is comparable to or worse than FedAvg",
        {
            "populations": markdown.table(header, rows),
            "rates": _rates_table(trials),
            "many_gap": markdown.difference_text(_difference(skewed["many"]), "accuracy"),
            "many_ahead": _rates_ahead(trials["many"]),
        },
        verdicts,
        "^scaffold/|^writers/scaffold|^(digits|characters|autoencoder|shakespeare)/scaffold",
        curve_figure("scaffold", "Real digits", panels),
    )


def _describe(name: str) -> str:
    clients, digits = POPULATIONS[name]
    return f"{clients:,} clients with {digits:,} digits of two labels"


def _divergence(results: Results, name: str) -> int | None:
    """Return a round by which the run of an entry has diverged, or None."""
    found = results[name].records if name in results else []
    return next((round for record in found if (round := divergence(record)) is not None), None)


def _most_accurate(trials: Mapping[str, Sequence[RateTrial]]) -> Runs:
    """For each method, return the runs (one per seed) of the rates with the highest mean test accuracy."""
    best = {m: max(found, key=lambda trial: trial.result or 0.0) for m, found in trials.items() if found}
    return {method: list(trial.group.records) for method, trial in best.items()}


def _client_rates(trials: Mapping[str, Sequence[RateTrial]], runs: Runs) -> str:
    """Return log10 of the selected client rates of FedAvg and SCAFFOLD, marked if they are at an edge."""
    texts = []
    for method in ("fedavg", "scaffold"):
        if not runs.get(method):
            return ABSENT
        rates = sorted(_exponent(trial.client_lr) for trial in trials[method])
        selected = _exponent(runs[method][0].config["client.lr"])
        edge = " (edge)" if selected in (rates[0], rates[-1]) else ""
        texts.append(markdown.number(selected) + edge)
    return ", ".join(texts)


def _rates(runs: Runs) -> str:
    """Return log10 of the client rates of FedAvg and SCAFFOLD."""
    known = [runs.get(method) for method in ("fedavg", "scaffold")]
    return ", ".join(markdown.number(_exponent(r[0].config["client.lr"])) for r in known if r) or ABSENT


def _exponent(rate: float) -> float:
    return round(log10(rate), 2)


def _rates_table(trials: Mapping[str, Mapping[str, Sequence[RateTrial]]]) -> str:
    """Return the mean accuracy of each method by client rate."""
    found = {
        (_describe(name), METHOD_NAMES[method]): {_exponent(t.client_lr): t.result for t in known}
        for name, methods in trials.items()
        for method, known in methods.items()
    }
    rates = sorted({rate for results in found.values() for rate in results})
    cells = {key: [results.get(rate) for rate in rates] for key, results in found.items()}
    rows = [[*key, *(ABSENT if v is None else f"{v * 100:.1f}" for v in cells[key])] for key in cells]
    return markdown.table(["data", "method", *map(markdown.number, rates)], rows)


def _rates_ahead(trials: Mapping[str, Sequence[RateTrial]]) -> str:
    """Return for how many client rates the interval of SCAFFOLD minus FedAvg is above 0."""
    by_rate = {m: {t.client_lr: t.group.records for t in trials.get(m, ())} for m in ("fedavg", "scaffold")}
    common = sorted(by_rate["fedavg"].keys() & by_rate["scaffold"].keys())
    gaps = [difference(by_rate["scaffold"][rate], by_rate["fedavg"][rate]) for rate in common]
    ahead = sum(gap is not None and gap.mean > (gap.half_width or 0.0) for gap in gaps)
    return f"{ahead} of {len(common)}"


def trained_best(results: Results, name: str) -> Runs:
    """For each method, return the runs (one per seed) of the rates with the smallest training loss."""
    best = {
        method: min(trials, key=lambda trial: math.inf if trial.train_loss is None else trial.train_loss)
        for method, trials in _trials(results, name).items()
        if trials
    }
    return {method: list(trial.group.records) for method, trial in best.items()}


def _trials(results: Results, name: str, more: str = "") -> dict[str, list[RateTrial]]:
    """Return the trials of each method in which no seed diverged. `more` is a second sweep, if it has run."""
    if name not in results or not results[name].complete:
        return {}
    names = [name, *([more] if more in results and results[more].complete else [])]
    grids = method_grids(joined_records(results, names))
    return {method: [t for t in grid.trials if not _is_lost(t)] for method, grid in grids.items()}


def _is_lost(trial: RateTrial) -> bool:
    """Whether a seed of a trial diverged, also with a finite loss."""
    return bool(trial.state) or any(divergence(record) is not None for record in trial.group.records)


def _difference(runs: Runs, name: str = "value") -> Interval | None:
    return difference(runs.get("scaffold", []), runs.get("fedavg", []), name)


def _row(runs: Runs, name: str = "value", diverged: int | None = None) -> list[str]:
    means = [mean_interval(runs.get(method, []), name) for method in ("fedavg", "scaffold")]
    texts = [markdown.value_text(mean, "accuracy") for mean in means]
    if diverged is not None:
        texts[1] = f"diverged by round {diverged}"
    return [*texts, markdown.difference_text(_difference(runs, name), "accuracy")]


def _judged(runs: Runs, what: str, rates: str = "") -> rules.Verdict:
    return rules.judge_not_better(_difference(runs), what, rates)


def _judged_characters(runs: Runs) -> rules.Verdict:
    """Judge only runs of one CPU type: on characters, the type alone can change a result by a point."""
    verdict = _judged(runs, "characters", FEDAVGS_RATES)
    types = {cpu_type(record.info["machine"]) for m in ("fedavg", "scaffold") for record in runs.get(m, [])}
    if verdict.status == rules.NOT_RUN or len(types) < 2:
        return verdict
    return rules.Verdict(rules.NOT_SHOWN, f"{verdict.reason}; the two runs have different CPU types")


def _judged_digits(runs: Runs, diverged: int | None) -> rules.Verdict:
    if diverged is None:
        return rules.judge_not_better(_difference(runs, "last"), "digits", FEDAVGS_RATES)
    reason = f"digits: with {FEDAVGS_RATES} SCAFFOLD diverged by round {diverged} of 200 (one seed)"
    return rules.Verdict(rules.NOT_SHOWN, reason)


def _measured(runs: Runs) -> rules.Verdict:
    """Return the difference where the paper claims nothing."""
    gap = _difference(runs)
    if gap is None:
        return rules.not_run("FedAvg or SCAFFOLD", 0, 1)
    text = markdown.difference_text(gap, "accuracy")
    return rules.Verdict(rules.MEASURED, f"SCAFFOLD {text} points ({gap.n} seeds)")
