"""The best result for each value of tau."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from matplotlib.figure import Figure

from claims import figures, markdown, rules, tuning_rules
from claims.results import Results
from claims.section import Section, seed_values
from claims.sweeps import DIGIT_TAUS, TAG_TAUS, TEXT_TAUS, Sweeps
from claims.tags_plan import TAU
from claims.tuning_rules import TAUS
from fedopt.formatting import ABSENT
from fedopt.reports import RateGrid, RateTrial, log10
from fedopt_paper import plotting
from fedopt_paper.published import ADAPTIVE, METHOD_NAMES


def robustness_to_tau(results: Results) -> Section:
    """The best result for each tau."""
    tables: dict[str, str] = {}
    verdicts: dict[str, rules.Verdict] = {}
    drawn: dict[str, Callable[[], Figure]] = {}
    for sweeps in (TAG_TAUS, DIGIT_TAUS, TEXT_TAUS):
        grids = sweeps.grids(results)
        trials = {m: _common_trials(sweeps, grids[m]) for m in ADAPTIVE if m in grids}
        best = {m: _best_by_tau(found, _by_result) for m, found in trials.items()}
        if not best:
            tables |= {f"{sweeps.name}{part}": "" for part in ("", "_rates", "_seeds")}
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
            selected = [_best_by_tau(known, goodness) for goodness in (_by_result, _by_loss)]
            by_result, by_loss = ({t: _seeds(trial) for t, trial in found.items()} for found in selected)
            edges = {tau for found in selected for tau, trial in found.items() if _is_edge(trial, known)}
            is_exception = method in sweeps.exceptions
            verdicts[label] = tuning_rules.judge_robustness(by_result, by_loss, edges, method, is_exception)
            if method in sweeps.all_taus:
                verdicts[f"{label}, all values of tau"] = tuning_rules.judge_small_differences(
                    by_result, by_loss, method, edges
                )
        seeds = {len(trial.group.records) for found in best.values() for trial in found.values()}
        tables[f"{sweeps.name}_seeds"] = "one seed" if seeds == {1} else f"mean of {max(seeds)} seeds"
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
            best = _best_by_tau(same, _by_result)
            cells = [_cell(best[t]) if t in best else ABSENT for t in TAUS]
            rows.append([METHOD_NAMES[method], markdown.number(log10(rate)), *cells])
    header = ["log10 tau", "log10 server rate", *(markdown.number(tau) for tau in TAUS)]
    return markdown.table(header, rows)


def _seeds(trial: RateTrial) -> dict[int, float]:
    """Return the result of each seed. A trial that diverged has 0."""
    seeds = trial.group.seeds
    return dict.fromkeys(seeds, 0.0) if trial.result is None else seed_values(trial.group.records)


def _cell(trial: RateTrial) -> str:
    return "diverged" if trial.result is None else _percent(trial)


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
    """Return the best trial for each log10 of tau. A trial that diverged is used if all have."""
    by_tau: dict[float, list[RateTrial]] = {}
    done = {trial.tau for trial in trials if trial.result is not None}
    for trial in trials:
        if trial.tau is not None and (trial.result is not None or trial.tau not in done):
            by_tau.setdefault(log10(trial.tau), []).append(trial)
    return {tau: max(found, key=goodness) for tau, found in by_tau.items()}


def _is_edge(trial: RateTrial, trials: Sequence[RateTrial]) -> bool:
    """Return whether a rate of a trial is the smallest or largest of several with its tau."""
    same = [other for other in trials if other.tau == trial.tau]
    for name in ("client_lr", "server_lr"):
        rates = {getattr(other, name) for other in same}
        if len(rates) > 1 and getattr(trial, name) in (min(rates), max(rates)):
            return True
    return False
