"""Claims about the tags of Stack Overflow: sparse gradients, tuning, tau, and the relation of rates."""

from __future__ import annotations

from scipy.stats import spearmanr

from claims import figures, markdown, rules
from claims.plan import GRID, TAU
from claims.results import Results
from claims.section import Section, curve_figure, difference, finished, mean_interval
from claims.selection import joined_records, method_grids
from fedopt.analysis.ease_of_tuning import grid_ease_of_tuning
from fedopt.analysis.heatmap import RateGrid, log10
from fedopt.analysis.seeds import Interval
from fedopt.formatting import ABSENT
from fedopt.reproduction import plotting
from fedopt.reproduction.artifacts.tuning import MIN_CHANGE
from fedopt.reproduction.published import ADAPTIVE, METHOD_NAMES, OPTIMIZERS, paper_settings
from fedopt.runs.records import RunRecord

METRIC = "recall_at_5"
HEAT_MAP_TAU = 1e-3
GRIDS = (f"{GRID}_coarse", f"{GRID}_middle")
ALL_GRIDS = (*GRIDS, f"{GRID}_complete")
REAL, SYNTHETIC = "tags of real questions", "tags, synthetic data"


def clear_margin(results: Results) -> Section:
    """Adaptive methods against FedAvg, with tuned rates and several seeds."""
    paper = paper_settings("so_lr").results
    full = {method: _best_full(results, method) for method in OPTIMIZERS}
    synthetic = finished(results, "so_lr/synthetic/.*")
    rows = [
        [
            METHOD_NAMES[method],
            f"{paper[method]:.1f}",
            ", ".join(
                _minus(float(rate)) for rate in paper_settings("so_lr").rates[method] if rate is not None
            ),
            _point(full[method]),
            markdown.value_text(mean_interval(full[method]), METRIC),
            markdown.difference_text(_margin(full, method), METRIC),
            markdown.value_text(mean_interval(synthetic.get(method, [])), METRIC),
            markdown.difference_text(_margin(synthetic, method), METRIC),
        ]
        for method in OPTIMIZERS
    ]
    header = [
        "",
        "paper",
        "paper's rates",
        "our rates",
        "real",
        "− FedAvg",
        "synthetic",
        "− FedAvg",
    ]
    margins = {method: (paper[method] - paper["fedavg"]) / 100 for method in ADAPTIVE}
    verdicts = {
        name: rules.judge_clear_margin({m: _margin(runs, m) for m in ADAPTIVE}, margins)
        for name, runs in ((REAL, full), (SYNTHETIC, synthetic))
    }
    panels = {
        "real questions": {m: runs for m, runs in full.items() if runs},
        "synthetic data": {m: synthetic[m] for m in OPTIMIZERS if m in synthetic},
    }
    return Section(
        "sparse",
        "Adaptive server methods clearly beat FedAvg on sparse tasks",
        {"margins": markdown.table(header, rows)},
        verdicts,
        "^so_lr/(full|synthetic)/",
        curve_figure("sparse", "Tags of Stack Overflow", panels),
    )


def _best_full(results: Results, method: str) -> list[RunRecord]:
    """Return the long runs of the rates with the smallest training loss, of those that have finished."""
    candidates = [result.done for name, result in results.items() if name.startswith(f"so_lr/full/{method}_")]
    candidates = [records for records in candidates if records]

    def train_loss(records: list[RunRecord]) -> float:
        interval = mean_interval(records, "train_loss")
        return interval.mean if interval else float("inf")

    return min(candidates, key=train_loss, default=[])


def _margin(runs: dict[str, list[RunRecord]], method: str) -> Interval | None:
    return None if method == "fedavg" else difference(runs.get(method, []), runs.get("fedavg", []))


def _point(records: list[RunRecord]) -> str:
    if not records:
        return ABSENT
    config = records[0].config
    rates = [config.get(key) for key in ("client.lr", "server.lr", "server.tau")]
    return ", ".join(_minus(log10(rate)) for rate in rates if rate is not None)


def heat_map_grids(results: Results) -> dict[str, RateGrid]:
    """Return the trials of the heat maps: the same points for all methods."""
    grids = method_grids(joined_records(results, ALL_GRIDS))
    return {
        method: grids[method].select_tau(HEAT_MAP_TAU if method in ADAPTIVE else None)
        for method in OPTIMIZERS
        if method in grids
    }


def ease_of_tuning(results: Results) -> Section:
    """Heat maps over client and server rate."""
    grids = heat_map_grids(results)
    is_complete = all(name in results and results[name].complete for name in GRIDS)
    measures = dict(zip(grids, grid_ease_of_tuning(list(grids.values()), METRIC), strict=True))
    rows = []
    for method, grid in grids.items():
        ease, best = measures[method], grid.best
        above = ABSENT if ease.beats_reference is None else f"{ease.beats_reference} of {ease.total}"
        rows.append(
            [
                METHOD_NAMES[method],
                str(ease.total),
                ABSENT if best is None else f"{(best.value or 0) * 100:.1f}",
                f"{ease.near_best} of {ease.total}",
                above,
            ]
        )
    verdict = rules.judge_ease_of_tuning(measures if is_complete else {}, ADAPTIVE)
    header = [
        "",
        "trials",
        "best recall at 5, %",
        "within 1 point of the best of all",
        "above the best of FedAvg",
    ]
    return Section(
        "tuning",
        "Adaptive methods are easier to tune",
        {"ease": markdown.table(header, rows)},
        {REAL: verdict},
        f"^{GRID}|^digits/grid",
        {"tuning": lambda: figures.draw_heat_maps("Tags of real questions", grids, "recall at 5, %")},
    )


def robustness_to_tau(results: Results) -> Section:
    """The best result for each tau."""
    grids = method_grids(joined_records(results, (*ALL_GRIDS, TAU)))
    is_complete = TAU in results and results[TAU].complete
    lines = {method: _by_tau(grids[method]) for method in ADAPTIVE if method in grids}
    taus = (-5.0, -4.0, -3.0, -2.0, -1.0)
    rows = [
        [METHOD_NAMES[m], *(f"{line[t] * 100:.1f}" if t in line else ABSENT for t in taus)]
        for m, line in lines.items()
    ]
    verdicts = {
        f"{REAL}, {METHOD_NAMES[method]}": rules.judge_robustness(
            lines.get(method, {}) if is_complete else {}, method
        )
        for method in ADAPTIVE
    }
    shown = {m: {t: v * 100 for t, v in line.items()} for m, line in lines.items()}
    labels = (plotting.TAU, "best recall at 5, %")
    return Section(
        "tau",
        "Adaptive methods are robust to tau",
        {"taus": markdown.table(["log10 tau", *(_minus(tau) for tau in taus)], rows)},
        verdicts,
        f"^{TAU}$|^shakespeare/tau",
        {"tau": lambda: figures.draw_lines("Tags of real questions", shown, labels, 1)},
    )


def _by_tau(grid: RateGrid) -> dict[float, float]:
    """Return the best value for each log10 of tau at the client rate of the tau sweep."""
    best: dict[float, float] = {}
    for trial in grid.trials:
        if trial.tau and trial.result is not None and trial.client_lr == 100.0:
            tau = log10(trial.tau)
            best[tau] = max(best.get(tau, 0.0), trial.result)
    return best


def inverse_relation(results: Results) -> Section:
    """The best server rate for each client rate."""
    grids = heat_map_grids(results)
    is_complete = all(name in results and results[name].complete for name in GRIDS)
    lines = {method: _best_server_rates(grid) for method, grid in grids.items()}
    clients = sorted({rate for line in lines.values() for rate in line})
    rows = [
        [METHOD_NAMES[m], *(_minus(line[c]) if c in line else ABSENT for c in clients)]
        for m, line in lines.items()
    ]
    correlations = {m: _correlation(lines.get(m, {})) if is_complete else None for m in OPTIMIZERS}
    at_edge = [method for method in lines if _is_at_edge(lines[method], grids[method])]
    title = "Tags of real questions: best server rate"
    labels = ("client rate, " + plotting.CLIENT_RATE, "best server rate, " + plotting.SERVER_RATE)
    return Section(
        "rates",
        "Best client and server rates are inversely related on tag prediction",
        {"rates": markdown.table(["log10 client rate", *(_minus(rate) for rate in clients)], rows)},
        {REAL: rules.judge_inverse_relation(correlations, at_edge)},
        f"^{GRID}",
        {"rates": lambda: figures.draw_lines(title, lines, labels, 0.5)},
    )


def _minus(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _best_server_rates(grid: RateGrid) -> dict[float, float]:
    """Return log10 of the best server rate by log10 of the client rate, without untrained client rates."""
    columns: dict[float, list[tuple[float, float, bool]]] = {}
    for trial in grid.trials:
        if trial.result is not None:
            trained = _has_trained(trial.group.records[0])
            point = (trial.result, log10(trial.server_lr), trained)
            columns.setdefault(log10(trial.client_lr), []).append(point)
    return {client: max(points)[1] for client, points in sorted(columns.items()) if any(p[2] for p in points)}


def _is_at_edge(line: dict[float, float], grid: RateGrid) -> bool:
    """Return whether more than half of the best server rates are the smallest or largest of the grid."""
    rates = [log10(trial.server_lr) for trial in grid.trials]
    return sum(rate in (min(rates), max(rates)) for rate in line.values()) > len(line) / 2


def _has_trained(record: RunRecord) -> bool:
    _, losses = record.curve("test", "loss")
    return len(losses) > 1 and abs(losses[-1] - losses[0]) > MIN_CHANGE * losses[0]


def _correlation(line: dict[float, float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three client rates or a constant line."""
    if len(line) < 3 or len(set(line.values())) < 2:
        return None if len(line) < 3 else 0.0
    return float(spearmanr(list(line), list(line.values())).statistic)
