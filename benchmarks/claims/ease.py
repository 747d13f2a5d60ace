"""Good pairs of client rate and server rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from claims import figures, markdown, rules
from claims.baselines import load_baselines
from claims.results import Results
from claims.section import Section
from claims.sweeps import DIGIT_GRIDS, TAG_GRIDS, Sweeps, heat_maps
from claims.tags_plan import GRID
from fedopt.analysis.ease_of_tuning import grid_ease_of_tuning
from fedopt.analysis.heatmap import RateGrid, RateTrial
from fedopt.formatting import ABSENT
from fedopt.reproduction.published import ADAPTIVE, METHOD_NAMES


def ease_of_tuning(results: Results) -> Section:
    """Heat maps over client and server rate."""
    tables, verdicts, drawn = {}, {}, dict[str, Callable[[], Figure]]()
    for sweeps in (TAG_GRIDS, DIGIT_GRIDS):
        grids = heat_maps(sweeps, results)
        tables[sweeps.name] = _ease_table(sweeps, grids)
        good = {m: len(_good_trials(sweeps, grids, m)) / len(grid.trials) for m, grid in grids.items()}
        is_complete = sweeps.is_complete(results)
        if sweeps is DIGIT_GRIDS:
            verdicts[f"{sweeps.data}, one server rate"] = _judged_client_rates(grids if is_complete else {})
        verdicts[f"{sweeps.data}, all settings"] = rules.judge_ease_of_tuning(
            good if is_complete else {}, ADAPTIVE
        )
        if sweeps is DIGIT_GRIDS:
            tables["seeds"] = _seeds_text(grids)
        if grids:
            label = f"{sweeps.label}, %"
            title = f"{sweeps.title}: {sweeps.label} by client rate and server rate"
            drawn[f"tuning_{sweeps.name}"] = partial(figures.draw_heat_maps, title, grids, label)
    return Section(
        "tuning", "Adaptive methods are easier to tune", tables, verdicts, f"^{GRID}|^writers/grid", drawn
    )


def _seeds_text(grids: Mapping[str, RateGrid]) -> str:
    seeds = {record.info["seed"] for g in grids.values() for t in g.trials for record in t.group.records}
    return f", mean of {len(seeds)} seeds" if len(seeds) > 1 else " with one seed"


def _good_trials(sweeps: Sweeps, grids: dict[str, RateGrid], method: str) -> list[RateTrial]:
    """Return the trials that are at least halfway from a constant prediction to the best of all methods."""
    found = [trial.result for grid in grids.values() for trial in grid.trials if trial.result is not None]
    best = max(found, default=1.0)
    limit = (load_baselines()[sweeps.name] + best) / 2
    return [trial for trial in grids[method].trials if trial.result is not None and trial.result >= limit]


def _ease_table(sweeps: Sweeps, grids: dict[str, RateGrid]) -> str:
    rows = []
    measures = grid_ease_of_tuning(list(grids.values()), sweeps.metric)
    client_rates = near_best_client_rates({method: grid.trials for method, grid in grids.items()})
    for (method, grid), ease in zip(grids.items(), measures, strict=True):
        best = grid.best
        value = ABSENT if best is None else f"{(best.value or 0) * 100:.1f}"
        good = len(_good_trials(sweeps, grids, method))
        rows.append(
            [METHOD_NAMES[method], value, f"{good} of {ease.total}", f"{ease.near_best} of {ease.total}"]
        )
        rows[-1].append(", ".join(str(count) for _, count in sorted(client_rates[method].items())))
        rows[-1].append(f"{worst_with_one_server_rate(grid) * 100:.1f}")
    rows.append(["constant prediction", f"{load_baselines()[sweeps.name] * 100:.1f}", *[ABSENT] * 4])
    header = [
        "",
        f"best {sweeps.label}, %",
        "all settings: halfway to the best",
        "within 1 point of the best",
    ]
    header += ["one server rate: client rates near the best, by seed", "one server rate: worst result, %"]
    return markdown.table(header, rows) if grids else ""


def _judged_client_rates(grids: Mapping[str, RateGrid]) -> rules.Verdict:
    """Judge how many client rates are good for one server rate, by seed."""
    counts = near_best_client_rates({method: grid.trials for method, grid in grids.items()})
    total = len({trial.client_lr for grid in grids.values() for trial in grid.trials})
    return rules.judge_good_client_rates(counts, total, ("fedadam", "fedyogi"))


def near_best_client_rates(trials: Mapping[str, Sequence[RateTrial]]) -> dict[str, dict[int, int]]:
    """Return the most client rates near the best result for one server rate, by method and seed.

    The best result is that of all methods with the same seed.
    """
    found: dict[int, dict[str, dict[float, list[float]]]] = {}  # by seed, method and server rate
    for method, known in trials.items():
        for trial in known:
            for record in trial.group.records:
                by_method = found.setdefault(record.info["seed"], {})
                results = by_method.setdefault(method, {}).setdefault(trial.server_lr, [])
                value = record.info.get("value") if record.status == "done" else None
                results.append(value or 0.0)
    counts: dict[str, dict[int, int]] = {}
    for seed, by_method in found.items():
        best = max(value for rates in by_method.values() for values in rates.values() for value in values)
        for method, rates in by_method.items():
            good = [sum(v >= best - rules.NEAR_BEST for v in values) for values in rates.values()]
            counts.setdefault(method, {})[seed] = max(good)
    return counts


def worst_with_one_server_rate(grid: RateGrid) -> float:
    """Return the worst result over all client rates with the server rate for which it is best.

    It is high if a good server rate can be kept when the client rate changes: a rectangle of good rates.
    A trial that diverged counts as 0.
    """
    by_server: dict[float, list[float]] = {}
    for trial in grid.trials:
        by_server.setdefault(trial.server_lr, []).append(trial.result or 0.0)
    return max((min(results) for results in by_server.values()), default=0.0)
