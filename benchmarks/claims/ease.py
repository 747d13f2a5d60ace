"""Good pairs of client rate and server rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from statistics import fmean

from matplotlib.figure import Figure

from claims import figures, markdown, rules, tuning_rules
from claims.baselines import load_baselines
from claims.results import Results
from claims.section import Section
from claims.sweeps import DIGIT_GRIDS, TAG_GRIDS, Sweeps, heat_maps
from claims.tags_plan import GRID
from fedopt.formatting import ABSENT, count_noun
from fedopt.reports import RateGrid, RateTrial
from fedopt_paper.published import METHOD_NAMES

DISTANCES = (1, 2, 3, 5)  # points; all that were looked at with seed 0

# By method: results by server rate and client rate. A trial that diverged has 0.
MethodResults = Mapping[str, Mapping[float, Mapping[float, float]]]
SeedResults = Mapping[int, MethodResults]


def ease_of_tuning(results: Results) -> Section:
    """Heat maps over client and server rate."""
    tables, verdicts, drawn = {}, {}, dict[str, Callable[[], Figure]]()
    for sweeps in (TAG_GRIDS, DIGIT_GRIDS):
        grids = heat_maps(sweeps, results)
        found = results_by_seed({method: grid.trials for method, grid in grids.items()})
        tables[sweeps.name] = _ease_table(sweeps, grids, found)
        judged = found if sweeps.is_complete(results) else {}
        shares = good_shares(judged, load_baselines()[sweeps.name])
        verdicts[f"{sweeps.data}, one server rate"] = _judged_client_rates(judged)
        verdicts[f"{sweeps.data}, all settings"] = tuning_rules.describe_good_shares(shares)
        means = count_client_rates(mean_of_seeds(found, found)) if found else {}
        tables[f"{sweeps.name}_mean"] = ", ".join(f"{METHOD_NAMES[m]} {count}" for m, count in means.items())
        tables[f"{sweeps.name}_distances"] = _distance_table(found)
        tables[f"{sweeps.name}_seeds"] = f"mean of {len(found)} seeds" if len(found) > 1 else "one seed"
        if grids:
            label = f"{sweeps.label}, %"
            title = f"{sweeps.title}: {sweeps.label} by client rate and server rate"
            drawn[f"tuning_{sweeps.name}"] = partial(
                figures.draw_heat_maps, title, grids, label, rules.NEAR_BEST
            )
    return Section(
        "tuning", "Adaptive methods are easier to tune", tables, verdicts, f"^{GRID}|^writers/grid", drawn
    )


def results_by_seed(trials: Mapping[str, Sequence[RateTrial]]) -> SeedResults:
    """Return the results of trials by seed, method, server rate and client rate."""
    found: dict[int, dict[str, dict[float, dict[float, float]]]] = {}
    for method, known in trials.items():
        for trial in known:
            for record in trial.group.records:
                value = record.info.get("value") if record.status == "done" else None
                rates = found.setdefault(record.info["seed"], {}).setdefault(method, {})
                rates.setdefault(trial.server_lr, {})[trial.client_lr] = value or 0.0
    return found


def mean_of_seeds(found: SeedResults, seeds: Collection[int]) -> MethodResults:
    """Return the mean results over some seeds."""
    known = [found[seed] for seed in sorted(seeds)]
    return {
        method: {
            server: {client: fmean(one[method][server][client] for one in known) for client in by_client}
            for server, by_client in rates.items()
        }
        for method, rates in known[0].items()
    }


def _values(rates: Mapping[float, Mapping[float, float]]) -> list[float]:
    return [value for by_client in rates.values() for value in by_client.values()]


def good_shares(found: SeedResults, constant: float) -> dict[str, list[float]]:
    """Return the shares of trials that are halfway from a constant prediction to the best, for each seed."""
    shares: dict[str, list[float]] = {}
    for _, methods in sorted(found.items()):
        limit = (constant + max(value for rates in methods.values() for value in _values(rates))) / 2
        for method, rates in methods.items():
            values = _values(rates)
            shares.setdefault(method, []).append(sum(v >= limit for v in values) / len(values))
    return shares


def count_client_rates(methods: MethodResults, distance: float = rules.NEAR_BEST) -> dict[str, int]:
    """Return, by method, the most client rates near the best result of all methods for one server rate."""
    limit = max(value for rates in methods.values() for value in _values(rates)) - distance
    return {
        method: max(sum(v >= limit for v in by_client.values()) for by_client in rates.values())
        for method, rates in methods.items()
    }


def near_best_client_rates(
    found: SeedResults, distance: float = rules.NEAR_BEST
) -> dict[str, dict[int, int]]:
    """Return the numbers of client rates of `count_client_rates` by method and seed."""
    counts: dict[str, dict[int, int]] = {}
    for seed, methods in sorted(found.items()):
        for method, count in count_client_rates(methods, distance).items():
            counts.setdefault(method, {})[seed] = count
    return counts


def _ease_table(sweeps: Sweeps, grids: Mapping[str, RateGrid], found: SeedResults) -> str:
    rows = []
    client_rates, shares = near_best_client_rates(found), good_shares(found, load_baselines()[sweeps.name])
    for method, grid in grids.items():
        best = ABSENT if grid.best is None else f"{(grid.best.value or 0) * 100:.1f}"
        counts = ", ".join(map(str, client_rates[method].values()))
        share = f"{sum(shares[method]) / len(shares[method]) * 100:.0f}"
        worst = f"{worst_with_one_server_rate(grid) * 100:.1f}"
        rows.append([METHOD_NAMES[method], best, counts, share, worst])
    rows.append(["constant prediction", f"{load_baselines()[sweeps.name] * 100:.1f}", *[ABSENT] * 3])
    header = [f"best {sweeps.label}, %", "one server rate: client rates near the best"]
    header += ["all settings: halfway to the best, %", "one server rate: worst result, %"]
    return markdown.table(["", *header], rows) if grids else ""


def _distance_table(found: SeedResults) -> str:
    """Return the numbers of good client rates for all distances from the best, one for each seed."""
    by_distance = {d: near_best_client_rates(found, d / 100) for d in DISTANCES}
    methods = next(iter(by_distance.values()))
    rows = [
        [METHOD_NAMES[m], *(", ".join(map(str, by_distance[d][m].values())) for d in DISTANCES)]
        for m in methods
    ]
    return markdown.table(["", *map(_distance_name, DISTANCES)], rows) if methods else ""


def _distance_name(points: int) -> str:
    return count_noun(points, "point")


def _judged_client_rates(found: SeedResults) -> rules.Verdict:
    """Judge how many client rates are good for one server rate, by seed."""
    total = len({c for methods in found.values() for r in methods.values() for s in r.values() for c in s})
    counts, judged = near_best_client_rates(found), ("fedadam", "fedyogi")
    others = {
        _distance_name(d): near_best_client_rates(found, d / 100)
        for d in DISTANCES
        if d != rules.NEAR_BEST * 100
    }
    new = found.keys() - {rules.MEASURE_SEED}
    means = count_client_rates(mean_of_seeds(found, new)) if new else {}
    return tuning_rules.judge_good_client_rates(counts, others, means, total, judged)


def worst_with_one_server_rate(grid: RateGrid) -> float:
    """Return the worst result over all client rates with the server rate for which it is best.

    It is high if a good server rate can be kept when the client rate changes: a rectangle of good rates.
    A trial that diverged counts as 0.
    """
    by_server: dict[float, list[float]] = {}
    for trial in grid.trials:
        by_server.setdefault(trial.server_lr, []).append(trial.result or 0.0)
    return max((min(results) for results in by_server.values()), default=0.0)
