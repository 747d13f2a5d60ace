"""The best server rate for each client rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import numpy as np
from scipy.stats import rankdata

from claims import figures, markdown, rules, tuning_rules
from claims.baselines import load_baselines
from claims.results import Results
from claims.section import Section
from claims.sweeps import DIGIT_GRIDS, TAG_GRIDS, Sweeps, heat_maps
from claims.tags_plan import GRID
from fedopt.formatting import ABSENT
from fedopt.reports import RateGrid, log10
from fedopt.runs.records import RunRecord
from fedopt_paper import plotting
from fedopt_paper.artifacts.tuning import MIN_CHANGE
from fedopt_paper.published import ADAPTIVE, METHOD_NAMES, OPTIMIZERS

FLOOR_MARGIN = 0.02  # above a constant prediction; below, trials have learned nothing


def inverse_relation(results: Results) -> Section:
    """The best server rate for each client rate."""
    tags, digits = (heat_maps(sweeps, results) for sweeps in (TAG_GRIDS, DIGIT_GRIDS))
    lines = {
        "tags": {method: _best_server_rates(grid) for method, grid in tags.items()},
        "digits": {method: _best_server_rates(grid) for method, grid in digits.items()},
    }
    verdicts = {f"{TAG_GRIDS.data}, {METHOD_NAMES[m]}": _judged(TAG_GRIDS, results, m) for m in OPTIMIZERS}
    for method in rules.NON_ADAPTIVE:
        verdicts[f"{DIGIT_GRIDS.data}, {METHOD_NAMES[method]}"] = _judged(DIGIT_GRIDS, results, method)
    verdicts[f"{DIGIT_GRIDS.data}, stability"] = _judged_stability(results, digits, lines["digits"])
    labels = ("client rate, " + plotting.CLIENT_RATE, "best server rate, " + plotting.SERVER_RATE)
    drawn = {
        f"rates_{sweeps.name}": partial(
            figures.draw_lines, f"{sweeps.title}: best server rate", lines[sweeps.name], labels, 0.5
        )
        for sweeps in (TAG_GRIDS, DIGIT_GRIDS)
        if lines[sweeps.name]
    }
    return Section(
        "rates",
        "Best rates: inversely related for FedAvg and FedAvgM, stable for adaptive methods",
        {name: _rates_table(found) for name, found in lines.items()},
        verdicts,
        f"^{GRID}|^writers/grid",
        drawn,
    )


def _judged_stability(
    results: Results, grids: dict[str, RateGrid], lines: dict[str, dict[float, float]]
) -> rules.Verdict:
    known = {method: line for method, line in lines.items() if line and DIGIT_GRIDS.is_complete(results)}
    spans = {method: max(line.values()) - min(line.values()) for method, line in known.items()}
    at_edge = [method for method, line in known.items() if _count_edges(line, grids[method])]
    correlations = {method: _correlation(known.get(method, {})) for method in ADAPTIVE}
    return tuning_rules.judge_stability(spans, at_edge, correlations)


def _judged(sweeps: Sweeps, results: Results, method: str) -> rules.Verdict:
    grid = heat_maps(sweeps, results).get(method)
    if grid is None or not sweeps.is_complete(results):
        return tuning_rules.judge_inverse_relation(None, "", method)
    line = _best_server_rates(grid)
    return tuning_rules.judge_inverse_relation(_correlation(line), _obstacle(sweeps, line, grid), method)


def _rates_table(lines: dict[str, dict[float, float]]) -> str:
    clients = sorted({rate for line in lines.values() for rate in line})
    rows = [
        [METHOD_NAMES[m], *(markdown.number(line[c]) if c in line else ABSENT for c in clients)]
        for m, line in lines.items()
    ]
    return markdown.table(["log10 client rate", *(markdown.number(rate) for rate in clients)], rows)


def _obstacle(sweeps: Sweeps, line: dict[float, float], grid: RateGrid) -> str:
    """Return why the best server rates of a method say nothing; "" if they do."""
    floor = load_baselines()[sweeps.name]
    if grid.best is None or (grid.best.value or 0.0) < floor + FLOOR_MARGIN:
        return f"no trial is more than {FLOOR_MARGIN * 100:g} points above a constant prediction"
    if _count_edges(line, grid) > len(line) / 2:
        return "best rates mostly at the edge of the grid"
    return ""


def _best_server_rates(grid: RateGrid) -> dict[float, float]:
    """Return log10 of the best server rate by log10 of the client rate, without untrained client rates."""
    columns: dict[float, list[tuple[float, float, bool]]] = {}
    for trial in grid.trials:
        if trial.result is not None:
            trained = _has_trained(trial.group.records[0])
            point = (trial.result, log10(trial.server_lr), trained)
            columns.setdefault(log10(trial.client_lr), []).append(point)
    return {client: max(points)[1] for client, points in sorted(columns.items()) if any(p[2] for p in points)}


def _count_edges(line: dict[float, float], grid: RateGrid) -> int:
    """Return how many of the best server rates are the smallest or largest of the grid."""
    rates = [log10(trial.server_lr) for trial in grid.trials]
    return sum(rate in (min(rates), max(rates)) for rate in line.values())


def _has_trained(record: RunRecord) -> bool:
    _, losses = record.curve("test", "loss")
    return len(losses) > 1 and abs(losses[-1] - losses[0]) > MIN_CHANGE * losses[0]


def _correlation(line: dict[float, float]) -> tuning_rules.Correlation | None:
    """Return Spearman's rank correlation with its exact probability; None for fewer than three rates."""
    if len(line) < 3:
        return None
    clients, servers = list(line), list(line.values())
    if len(set(servers)) < 2:
        return tuning_rules.Correlation(0.0, 1.0, len(line))
    value = _spearman(clients, servers)
    orders = [_spearman(clients, order) for order in permutations(servers)]
    share = sum(order <= value + 1e-9 for order in orders) / len(orders)
    return tuning_rules.Correlation(value, share, len(line))


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
