"""Adaptive methods against FedAvg on the tags of Stack Overflow, whose gradients are sparse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims import markdown, rules
from claims.baselines import load_baselines
from claims.figures import Axis
from claims.results import EntryResult, Results, load_results_by_cpu
from claims.section import Runs, Section, curve_figure, difference, finished, mean_interval
from claims.selection import rates_text
from claims.tags_plan import synthetic_points as searched_points
from fedopt.formatting import ABSENT
from fedopt.reports import Interval
from fedopt.runs.records import RunRecord
from fedopt_paper.published import ADAPTIVE, METHOD_NAMES, OPTIMIZERS, paper_settings

METRIC = "recall_at_5"
REAL, SYNTHETIC = "tags of real questions, 1,500 rounds", "tags, synthetic data, 300 rounds"
PUBLISHED = "tags of real questions, the paper's rates, 1,500 rounds"
LONG_SYNTHETIC = "tags, synthetic data, 1,500 rounds"
TUNED_SYNTHETIC = "tags, synthetic data, our rates, 1,500 rounds"


def clear_margin(results: Results) -> Section:
    """Adaptive methods against FedAvg, with tuned rates and several seeds."""
    settings = paper_settings("so_lr")
    paper, rates = settings.results, settings.rates
    full = {method: best_full_runs(results, method) for method in OPTIMIZERS}
    published = {method: _runs_at(results, method, rates[method]) for method in OPTIMIZERS}
    synthetic = finished(results, "so_lr/synthetic/.*")
    long = finished(results, "so_lr/synthetic_1500/.*")
    rows = [
        [
            METHOD_NAMES[method],
            f"{paper[method]:.1f}",
            f"{settings.test_results[method]:.1f}",
            ", ".join(markdown.number(rate) for rate in rates[method] if rate is not None),
            rates_text(full[method]),
            markdown.value_text(mean_interval(full[method]), METRIC),
            markdown.difference_text(_margin(full, method), METRIC),
            markdown.value_text(mean_interval(published[method]), METRIC),
        ]
        for method in OPTIMIZERS
    ]
    rows.append(
        ["five most frequent tags", *[ABSENT] * 4, f"{load_baselines()['tags'] * 100:.1f}", *[ABSENT] * 2]
    )
    header = [
        "",
        "paper, validation",
        "paper, test",
        "paper's rates",
        "our rates",
        "real, our rates",
        "− FedAvg",
        "real, paper's rates",
    ]
    real_points = {method: _full_points(results, method) for method in OPTIMIZERS}
    synthetic_points = {method: _synthetic_points(results, method) for method in OPTIMIZERS}
    tuned = {method: points[0].done if points else [] for method, points in synthetic_points.items()}
    cases = {REAL: full, PUBLISHED: published, SYNTHETIC: synthetic}
    if set(long) >= set(OPTIMIZERS):
        cases[LONG_SYNTHETIC] = long
    if all(tuned.values()):
        cases[TUNED_SYNTHETIC] = tuned
    panels = {
        "real questions, our rates": {m: runs for m, runs in full.items() if runs},
        "real questions, the paper's rates": {m: runs for m, runs in published.items() if runs},
        "synthetic data, the paper's rates": {
            m: (long.get(m) or synthetic[m]) for m in OPTIMIZERS if m in synthetic
        },
        "synthetic data, our rates": {m: runs for m, runs in tuned.items() if runs},
    }
    return Section(
        "sparse",
        "Adaptive server methods clearly beat the others on sparse tasks",
        {
            "margins": markdown.table(header, rows),
            "synthetic": _synthetic_table({"300": synthetic, "1,500": long}, tuned),
            "tuned_over_momentum": _margins_text(tuned, "fedavgm"),
            "synthetic_points": _points_table(synthetic_points),
            "long_over_momentum": _margins_text(long, "fedavgm"),
            "points": _points_table(real_points),
            "recalls": ", ".join(
                f"{METHOD_NAMES[m]} {markdown.value_text(mean_interval(runs), METRIC)}"
                for m, runs in published.items()
            ),
            "over_momentum": _margins_text(full, "fedavgm"),
            "momentum": _margin_text(full, "fedavgm", "fedavg"),
            "over_adagrad": _margins_text(full, "fedadagrad"),
            "published_over_adagrad": _margins_text(published, "fedadagrad"),
            "published_momentum": _margin_text(published, "fedavgm", "fedavg"),
            "tau_gains": _tau_gains(results),
            "large_tau_gains": _large_tau_gains(results),
        },
        {
            name: rules.limit_to_weaker(_judged(runs), rules.SYNTHETIC_DATA)
            if "synthetic" in name
            else _judged(runs)
            for name, runs in cases.items()
        },
        "^so_lr/(full|synthetic)",
        curve_figure("sparse", "Tags of Stack Overflow", panels, None, dict.fromkeys(panels, Axis(0, 80))),
    )


def _runs_at(results: Results, method: str, rates: Sequence[float | None]) -> list[RunRecord]:
    """Return the long runs with these log10 of client rate, server rate and tau."""
    axes = zip(("client", "server", "tau"), rates, strict=True)
    name = "_".join(f"{axis}{rate:g}" for axis, rate in axes if rate is not None)
    result = results.get(f"so_lr/full/{method}_{name}")
    return result.done if result else []


def best_full_runs(results: Results, method: str) -> list[RunRecord]:
    """Return the long runs of the rates with the smallest training loss, of those that have finished."""
    points = _full_points(results, method)
    return points[0].done if points else []


def _full_points(results: Results, method: str) -> list[EntryResult]:
    """Return the results of each point at full length, the smallest training loss first."""
    found = [result for name, result in results.items() if name.startswith(f"so_lr/full/{method}_")]
    return sorted((point for point in found if point.done), key=_train_loss)


def _train_loss(point: EntryResult) -> float:
    interval = mean_interval(point.done, "train_loss")
    return interval.mean if interval else float("inf")


def _synthetic_points(results: Results, method: str) -> list[EntryResult]:
    """Return the results on synthetic data at full length, the smallest training loss first.

    These are the best points of the search and the paper's rates. The list is empty until all have run.
    """
    selected = [name for name, _ in searched_points(results, method)]
    names = dict.fromkeys([*selected, f"so_lr/synthetic_1500/{method}"])
    if not selected or not all(name in results and results[name].done for name in names):
        return []
    return sorted((results[name] for name in names), key=_train_loss)


def _synthetic_table(by_rounds: Mapping[str, Runs], tuned: Runs) -> str:
    """Return the recall on synthetic data with the paper's rates and with ours."""
    rows = [
        [
            METHOD_NAMES[method],
            *(
                markdown.value_text(mean_interval(runs.get(method, [])), METRIC)
                for runs in by_rounds.values()
            ),
            rates_text(tuned[method]),
            markdown.value_text(mean_interval(tuned[method]), METRIC),
            markdown.difference_text(_margin(tuned, method), METRIC),
        ]
        for method in OPTIMIZERS
    ]
    header = ["", *(f"paper's rates, {rounds} rounds" for rounds in by_rounds)]
    return markdown.table([*header, "our rates", "our rates, 1,500 rounds", "− FedAvg"], rows)


def _gap_to(selected: EntryResult, point: EntryResult) -> Interval | None:
    """Return the difference of a point from the selected one on the same CPU type; None if it has not run."""
    if selected.cpu_type == point.cpu_type:
        return difference(point.done, selected.done)
    same = load_results_by_cpu().get(point.cpu_type, {}).get(selected.name)
    return difference(point.done, same.done) if same else None


def _points_table(by_method: Mapping[str, Sequence[EntryResult]]) -> str:
    """Return all points that have run at full length. Differences are from the first point of the method."""
    rows = []
    for method, points in by_method.items():
        for point in points:
            loss = mean_interval(point.done, "train_loss")
            gap = None if point is points[0] else _gap_to(points[0], point)
            rows.append(
                [
                    METHOD_NAMES[method],
                    rates_text(point.done),
                    point.cpu_type,
                    f"{loss.mean * 1000:.2f}" if loss else ABSENT,
                    markdown.value_text(mean_interval(point.done), METRIC),
                    markdown.difference_text(gap, METRIC),
                ]
            )
    header = ["", "rates", "CPU type", "training loss × 1000", "recall at 5, %", "− selected"]
    return markdown.table(header, rows)


def _margin(runs: Runs, method: str, reference: str = "fedavg") -> Interval | None:
    return None if method == reference else difference(runs.get(method, []), runs.get(reference, []))


def _margin_text(runs: Runs, method: str, reference: str) -> str:
    return markdown.difference_text(_margin(runs, method, reference), METRIC)


def _margins_text(runs: Runs, reference: str) -> str:
    """Return the differences of the adaptive methods from another method."""
    methods = [method for method in ADAPTIVE if method != reference]
    return ", ".join(f"{METHOD_NAMES[m]} {_margin_text(runs, m, reference)}" for m in methods)


def _judged(runs: Runs) -> rules.Verdict:
    """Compare with the better of FedAvg and FedAvgM."""
    settings = paper_settings("so_lr")
    means = {m: mean_interval(runs.get(m, [])) for m in ("fedavg", "fedavgm")}
    reference = max(means, key=lambda m: mean.mean if (mean := means[m]) else 0.0)
    paper, test = (
        {method: (values[method] - values[reference]) / 100 for method in ADAPTIVE}
        for values in (settings.results, settings.test_results)
    )
    margins = {method: _margin(runs, method, reference) for method in ADAPTIVE}
    verdict = rules.judge_clear_margin(margins, paper, reference, test)
    missing = ", ".join(METHOD_NAMES[m] for m, mean in means.items() if mean is None)
    if not missing or verdict.status != rules.HOLDS:
        return verdict
    return rules.Verdict(rules.WEAKER, f"{verdict.reason}; not run: {missing}")


def _tau_gains(results: Results) -> str:
    """Return what tau = 1e-4 instead of 1e-5 changes after 1,500 rounds at the same rates; "" if unknown."""
    texts = []
    for method in ("fedadam", "fedyogi"):
        small, large = (results.get(f"so_lr/full/{method}_client2_server-0.5_tau{tau}") for tau in (-5, -4))
        if small and large:
            gap = difference(large.done, small.done)
            texts.append(f"{markdown.difference_text(gap, METRIC)} ({METHOD_NAMES[method]})")
    return " and ".join(texts)


def _large_tau_gains(results: Results) -> str:
    """Return what tau = 1e-3 with a larger client rate changes after 1,500 rounds; "" if unknown."""
    texts = []
    for method in ADAPTIVE:
        points = _full_points(results, method)
        for point in points[1:]:
            gap = _gap_to(points[0], point)
            if point.done[0].config["server.tau"] == 1e-3 and gap:
                texts.append(f"{markdown.difference_text(gap, METRIC)} ({METHOD_NAMES[method]})")
    return ", ".join(texts)
