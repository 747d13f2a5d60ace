"""SCAFFOLD against FedAvg where clients are rarely revisited, and where they are often revisited."""

from __future__ import annotations

import math

from claims import markdown, rules
from claims.label_skew import POPULATIONS
from claims.results import Results
from claims.section import Runs, Section, curve_figure, difference, finished, mean_interval
from claims.selection import method_grids
from fedopt.analysis.heatmap import RateTrial
from fedopt.analysis.seeds import Interval


def scaffold(results: Results) -> Section:
    """Compare SCAFFOLD with FedAvg on all data."""
    skewed = {name: _most_accurate(results, f"scaffold/{name}") for name in POPULATIONS}
    diverged = _diverged(results, "digits/scaffold-0")
    text = finished(results, r"shakespeare/[a-z]+-\d")
    digits = finished(results, r"digits/[a-z]+-\d")
    writers = trained_best(results, "writers/scaffold")
    rows = [
        *([_describe(name), *_row(runs)] for name, runs in skewed.items()),
        ["Shakespeare, 1,119 roles, 300 rounds", *_row(text)],
        ["digits, 539 writers, small network, 1,500 rounds", *_row(writers)],
        ["digits, 539 writers, 200 rounds, FedAvg's rates", *_row(digits, "last", diverged)],
    ]
    verdicts = {
        _describe("few"): _measured(skewed["few"]),
        _describe("few_small"): _measured(skewed["few_small"]),
        _describe("many"): _judged(skewed["many"], "2,000 clients", is_tuned=True),
        "Shakespeare": _judged(text, "Shakespeare"),
        "digits by writer, small network": _judged(writers, "539 writers", is_tuned=True),
        "digits by writer": _judged_digits(digits, diverged),
    }
    panels = {_describe(name): runs for name, runs in skewed.items()}
    panels["539 writers, small network"] = writers
    header = ["data", "FedAvg", "SCAFFOLD", "SCAFFOLD − FedAvg"]
    return Section(
        "scaffold",
        "SCAFFOLD does not beat FedAvg when clients are rarely revisited",
        {"populations": markdown.table(header, rows)},
        verdicts,
        "^scaffold/|^writers/scaffold|^digits/scaffold",
        curve_figure("scaffold", "Real digits", panels),
    )


def _describe(name: str) -> str:
    clients, digits = POPULATIONS[name]
    return f"{clients:,} clients with {digits:,} digits of two labels"


def _diverged(results: Results, name: str) -> int | None:
    """Return the last finished round of a run that diverged."""
    found = results[name].records if name in results else []
    return next((r.info.get("rounds_done", r.rounds) for r in found if r.status == "diverged"), None)


def _most_accurate(results: Results, name: str) -> Runs:
    """For each method, return the runs (one per seed) of the rates with the highest mean test accuracy."""
    best = {
        m: max(trials, key=lambda trial: trial.result or 0.0) for m, trials in _trials(results, name).items()
    }
    return {method: list(trial.group.records) for method, trial in best.items()}


def trained_best(results: Results, name: str) -> Runs:
    """For each method, return the runs (one per seed) of the rates with the smallest training loss."""
    best = {
        method: min(trials, key=lambda trial: math.inf if trial.train_loss is None else trial.train_loss)
        for method, trials in _trials(results, name).items()
    }
    return {method: list(trial.group.records) for method, trial in best.items()}


def _trials(results: Results, name: str) -> dict[str, list[RateTrial]]:
    """Return the trials of each method in which no seed diverged."""
    if name not in results or not results[name].complete:
        return {}
    grids = method_grids(results[name].records)
    return {method: [trial for trial in grid.trials if not trial.state] for method, grid in grids.items()}


def _difference(runs: Runs, name: str = "value") -> Interval | None:
    return difference(runs.get("scaffold", []), runs.get("fedavg", []), name)


def _row(runs: Runs, name: str = "value", diverged: int | None = None) -> list[str]:
    means = [mean_interval(runs.get(method, []), name) for method in ("fedavg", "scaffold")]
    texts = [markdown.value_text(mean, "accuracy") for mean in means]
    if diverged is not None:
        texts[1] = f"diverged at round {diverged}"
    return [*texts, markdown.difference_text(_difference(runs, name), "accuracy")]


def _judged(runs: Runs, what: str, *, is_tuned: bool = False) -> rules.Verdict:
    return rules.judge_not_better(_difference(runs), what, is_tuned)


def _judged_digits(runs: Runs, diverged: int | None) -> rules.Verdict:
    if diverged is None:
        return rules.judge_not_better(_difference(runs, "last"), "digits", False)
    reason = f"digits: with FedAvg's rates SCAFFOLD diverged at round {diverged} of 200 (one seed)"
    return rules.Verdict(rules.NOT_SHOWN, reason)


def _measured(runs: Runs) -> rules.Verdict:
    """Return the difference where the paper claims nothing."""
    gap = _difference(runs)
    if gap is None:
        return rules.not_run("FedAvg or SCAFFOLD", 0, 1)
    text = markdown.difference_text(gap, "accuracy")
    return rules.Verdict(rules.MEASURED, f"SCAFFOLD {text} points ({gap.n} seeds)")
