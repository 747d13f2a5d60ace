"""Claims about tuning: good rates, tau, and the relation of client rate and server rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from math import inf
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from claims import figures, markdown, rules
from claims.baselines import load_baselines
from claims.plan import MORE_TEXT_TAU, TEXT_TAU
from claims.results import Results
from claims.section import Section
from claims.selection import joined_records, method_grids
from claims.tags_plan import GRID, GRIDS, MORE_POINTS, TAU
from fedopt.analysis.ease_of_tuning import grid_ease_of_tuning
from fedopt.analysis.heatmap import RateGrid, RateTrial, log10
from fedopt.formatting import ABSENT
from fedopt.reproduction import plotting
from fedopt.reproduction.artifacts.tuning import MIN_CHANGE
from fedopt.reproduction.published import ADAPTIVE, METHOD_NAMES, OPTIMIZERS
from fedopt.runs.records import RunRecord

HEAT_MAP_TAU = 1e-3
FLOOR_MARGIN = 0.02  # above a constant prediction; below, trials have learned nothing
TAUS = (-5.0, -4.0, -3.0, -2.0, -1.0)


class Sweeps(NamedTuple):
    """Sweeps on one dataset."""

    name: str
    data: str
    metric: str
    label: str  # of the metric
    needed: tuple[str, ...]  # the entries without which there is no verdict
    optional: tuple[str, ...] = ()
    points: Collection[tuple[float, float]] = ()  # log10 rates that ran with every tau; (): all trials
    exceptions: Collection[str] = ()  # methods for which the paper does not claim robustness to tau
    uses_last: bool = False  # the last evaluation instead of the mean over the last 100 rounds

    @property
    def title(self) -> str:
        return self.data[0].upper() + self.data[1:]

    def is_complete(self, results: Results, method: str = "") -> bool:
        """Whether all entries have run or, with `method`, all except those of other methods."""
        others = set(METHOD_NAMES) - {method} if method else set()
        needed = [name for name in self.needed if others.isdisjoint(name.split("/"))]
        return all(name in results and results[name].complete for name in needed)

    def grids(self, results: Results) -> dict[str, RateGrid]:
        """Return the grid of each method. Optional entries are used if all of them are complete."""
        has_all = all(name in results and results[name].complete for name in self.optional)
        records = joined_records(results, (*self.needed, *(self.optional if has_all else ())))
        if self.uses_last:
            records = [r._replace(info={**r.info, "value": r.info.get("last")}) for r in records]
        return method_grids(records)


_TAGS = ("tags", "tags of real questions", "recall_at_5", "recall at 5")
_DIGITS = ("digits", "digits, small network", "accuracy", "accuracy")
_DIGIT_GRIDS = tuple(f"writers/grid/{method}" for method in OPTIMIZERS)
TAG_GRIDS = Sweeps(*_TAGS, GRIDS, tuple(MORE_POINTS))
DIGIT_GRIDS = Sweeps(*_DIGITS, _DIGIT_GRIDS, tuple(f"writers/grid_seeds/{method}" for method in OPTIMIZERS))
TAG_TAUS = Sweeps(
    *_TAGS,
    (TAU, f"{TAU}_clients", *GRIDS),
    points=list(product((1.0, 2.0, 3.0), (-1.0, -0.5, 0.0, 0.5, 1.0))),
    exceptions=("fedadam", "fedyogi"),
)
DIGIT_TAUS = Sweeps(
    *_DIGITS,
    (*(f"writers/tau/{method}" for method in ADAPTIVE), *_DIGIT_GRIDS),
    points=list(product((-1.5, -1.0, -0.5), (-2.5, -2.0, -1.5, -1.0, -0.5, 0.0))),
)
# The runs have 100 rounds, so the mean over the last 100 would measure the start of training.
TEXT_TAUS = Sweeps(
    "text", "Shakespeare", "accuracy", "accuracy", tuple(TEXT_TAU), tuple(MORE_TEXT_TAU), uses_last=True
)


def ease_of_tuning(results: Results) -> Section:
    """Heat maps over client and server rate."""
    tables, verdicts, drawn = {}, {}, dict[str, Callable[[], Figure]]()
    for sweeps in (TAG_GRIDS, DIGIT_GRIDS):
        grids = _heat_maps(sweeps, results)
        tables[sweeps.name] = _ease_table(sweeps, grids)
        good = {m: len(_good_trials(sweeps, grids, m)) / len(grid.trials) for m, grid in grids.items()}
        is_complete = sweeps.is_complete(results)
        if sweeps is DIGIT_GRIDS:
            verdicts[f"{sweeps.data}, one server rate"] = _judged_client_rates(grids if is_complete else {})
        verdicts[f"{sweeps.data}, all settings"] = rules.judge_ease_of_tuning(
            good if is_complete else {}, ADAPTIVE
        )
        if grids:
            label = f"{sweeps.label}, %"
            title = f"{sweeps.title}: {sweeps.label} by client rate and server rate"
            drawn[f"tuning_{sweeps.name}"] = partial(figures.draw_heat_maps, title, grids, label)
    return Section(
        "tuning", "Adaptive methods are easier to tune", tables, verdicts, f"^{GRID}|^writers/grid", drawn
    )


def _good_trials(sweeps: Sweeps, grids: dict[str, RateGrid], method: str) -> list[RateTrial]:
    """Return the trials that are at least halfway from a constant prediction to the best of all methods."""
    found = [trial.result for grid in grids.values() for trial in grid.trials if trial.result is not None]
    best = max(found, default=1.0)
    limit = (load_baselines()[sweeps.name] + best) / 2
    return [trial for trial in grids[method].trials if trial.result is not None and trial.result >= limit]


def _heat_maps(sweeps: Sweeps, results: Results) -> dict[str, RateGrid]:
    """Return the trials of the heat maps: the same points for all methods."""
    grids = sweeps.grids(results)
    return {
        method: grids[method].select_tau(HEAT_MAP_TAU if method in ADAPTIVE else None)
        for method in OPTIMIZERS
        if method in grids
    }


def _ease_table(sweeps: Sweeps, grids: dict[str, RateGrid]) -> str:
    rows = []
    measures = grid_ease_of_tuning(list(grids.values()), sweeps.metric)
    for (method, grid), ease in zip(grids.items(), measures, strict=True):
        best = grid.best
        value = ABSENT if best is None else f"{(best.value or 0) * 100:.1f}"
        near, good = f"{ease.near_best} of {ease.total}", len(_good_trials(sweeps, grids, method))
        rows.append([METHOD_NAMES[method], value, near, f"{good} of {ease.total}"])
        rows[-1].append(f"{worst_with_one_server_rate(grid) * 100:.1f}")
    rows.append(["constant prediction", f"{load_baselines()[sweeps.name] * 100:.1f}", *[ABSENT] * 3])
    header = [
        "",
        f"best {sweeps.label}, %",
        "within 1 point of the best of all",
        "at least halfway to the best",
    ]
    return markdown.table([*header, "one server rate: worst result, %"], rows) if grids else ""


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


def robustness_to_tau(results: Results) -> Section:
    """The best result for each tau."""
    tables, verdicts, drawn = {}, {}, dict[str, Callable[[], Figure]]()
    for sweeps in (TAG_TAUS, DIGIT_TAUS, TEXT_TAUS):
        grids = sweeps.grids(results)
        trials = {m: _common_trials(sweeps, grids[m]) for m in ADAPTIVE if m in grids}
        best = {m: _best_by_tau(found, _by_result) for m, found in trials.items()}
        if not best:
            tables[sweeps.name] = tables[f"{sweeps.name}_rates"] = ""
            verdicts[sweeps.data] = rules.not_run("values of tau", 0, len(TAUS))
            continue
        rows = [
            [METHOD_NAMES[m], *(_percent(found[t]) if t in found else ABSENT for t in TAUS)]
            for m, found in best.items()
        ]
        tables[sweeps.name] = markdown.table(["log10 tau", *(markdown.number(tau) for tau in TAUS)], rows)
        if sweeps is TEXT_TAUS:  # it has one client rate
            tables["text_rates"] = _server_rate_table(trials)
        for method in ADAPTIVE:
            label = f"{sweeps.data}, {METHOD_NAMES[method]}"
            known = trials.get(method, []) if sweeps.is_complete(results, method) else []
            verdicts[label] = _judged_robustness(known, method, method in sweeps.exceptions)
            if method in ("fedadam", "fedyogi") and method not in sweeps.exceptions:
                by_tau = _best_by_tau(known, _by_result)
                verdicts[f"{label}, all values of tau"] = rules.judge_small_differences(
                    {tau: trial.result or 0.0 for tau, trial in by_tau.items()}, method
                )
        lines = {m: {t: (trial.result or 0) * 100 for t, trial in found.items()} for m, found in best.items()}
        if any(lines.values()):
            title, labels = f"{sweeps.title}: best result for each tau", (plotting.TAU, f"{sweeps.label}, %")
            drawn[f"tau_{sweeps.name}"] = partial(figures.draw_lines, title, lines, labels, 1)
    pattern = f"^{TAU}|^writers/tau|^shakespeare/tau"
    return Section("tau", "Adaptive methods are robust to tau", tables, verdicts, pattern, drawn)


def _server_rate_table(trials: Mapping[str, Sequence[RateTrial]]) -> str:
    """Return the result of each server rate and tau."""
    rows = []
    for method, found in trials.items():
        for rate in sorted({trial.server_lr for trial in found}):
            same = [trial for trial in found if trial.server_lr == rate]
            best, tried = _best_by_tau(same, _by_result), {log10(t.tau) for t in same if t.tau is not None}
            cells = [_percent(best[t]) if t in best else "diverged" if t in tried else ABSENT for t in TAUS]
            rows.append([METHOD_NAMES[method], markdown.number(log10(rate)), *cells])
    header = ["log10 tau", "log10 server rate", *(markdown.number(tau) for tau in TAUS)]
    return markdown.table(header, rows)


def _judged_robustness(trials: Sequence[RateTrial], method: str, is_exception: bool) -> rules.Verdict:
    best = [_best_by_tau(trials, goodness) for goodness in (_by_result, _by_loss)]
    values = [{tau: trial.result or 0.0 for tau, trial in found.items()} for found in best]
    edges = [tau for tau, trial in best[0].items() if _is_edge(trial, trials)]
    return rules.judge_robustness(*values, edges, method, is_exception)


def _percent(trial: RateTrial) -> str:
    return f"{(trial.result or 0.0) * 100:.1f}"


def _common_trials(sweeps: Sweeps, grid: RateGrid) -> list[RateTrial]:
    """Return the trials with points that all values of tau have."""
    trials = [trial for trial in grid.trials if trial.tau is not None]
    if not sweeps.points:
        return trials
    return [
        t for t in trials if (round(log10(t.client_lr), 2), round(log10(t.server_lr), 2)) in sweeps.points
    ]


def _by_result(trial: RateTrial) -> float:
    return trial.result or 0.0


def _by_loss(trial: RateTrial) -> float:
    return -inf if trial.train_loss is None else -trial.train_loss


def _best_by_tau(
    trials: Sequence[RateTrial], goodness: Callable[[RateTrial], float]
) -> dict[float, RateTrial]:
    """Return the best trial for each log10 of tau, without those that diverged."""
    by_tau: dict[float, list[RateTrial]] = {}
    for trial in trials:
        if trial.tau is not None and trial.result is not None:
            by_tau.setdefault(log10(trial.tau), []).append(trial)
    return {tau: max(found, key=goodness) for tau, found in by_tau.items()}


def _is_edge(trial: RateTrial, trials: Sequence[RateTrial]) -> bool:
    """Return whether a rate of a trial is the smallest or largest of at least three with its tau."""
    same = [other for other in trials if other.tau == trial.tau]
    for name in ("client_lr", "server_lr"):
        rates = {getattr(other, name) for other in same}
        if len(rates) > 2 and getattr(trial, name) in (min(rates), max(rates)):
            return True
    return False


def inverse_relation(results: Results) -> Section:
    """The best server rate for each client rate."""
    tags, digits = (_heat_maps(sweeps, results) for sweeps in (TAG_GRIDS, DIGIT_GRIDS))
    lines = {
        "tags": {method: _best_server_rates(grid) for method, grid in tags.items()},
        "digits": {method: _best_server_rates(grid) for method, grid in digits.items()},
    }
    verdicts = {f"{TAG_GRIDS.data}, {METHOD_NAMES[m]}": _judged(TAG_GRIDS, results, m) for m in OPTIMIZERS}
    for method in ("fedavgm", "fedavg"):
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
        "Best client and server rates are inversely related",
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
    return rules.judge_stability(spans, at_edge, ADAPTIVE)


def _judged(sweeps: Sweeps, results: Results, method: str) -> rules.Verdict:
    grid = _heat_maps(sweeps, results).get(method)
    if grid is None or not sweeps.is_complete(results):
        return rules.judge_inverse_relation(None, "", method)
    line = _best_server_rates(grid)
    return rules.judge_inverse_relation(_correlation(line), _obstacle(sweeps, line, grid), method)


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


def _correlation(line: dict[float, float]) -> rules.Correlation | None:
    """Return Spearman's rank correlation with its exact probability; None for fewer than three rates."""
    if len(line) < 3:
        return None
    clients, servers = list(line), list(line.values())
    if len(set(servers)) < 2:
        return rules.Correlation(0.0, 1.0, len(line))
    value = _spearman(clients, servers)
    orders = [_spearman(clients, order) for order in permutations(servers)]
    share = sum(order <= value + 1e-9 for order in orders) / len(orders)
    return rules.Correlation(value, share, len(line))


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
