"""Why FedAdam and FedYogi are behind FedAdagrad in short runs."""

from __future__ import annotations

from collections.abc import Sequence

from claims import markdown, rules
from claims.results import Results, halving_rungs, mean_train_loss, value_at
from claims.section import Section, difference, finished, mean_interval, text_at, values_at
from claims.selection import joined_records, method_grids
from claims.sparse import best_full_runs
from claims.sweeps import HEAT_MAP_TAU
from claims.tags_plan import GRIDS, MORE_POINTS, SEEDED_CHANGES, SEEDS, TAU, TUNING_ROUNDS
from fedopt.formatting import ABSENT
from fedopt.reports import Interval, RateGrid, RateTrial, log10, paired_difference
from fedopt.tuning.searches import REDUCTION
from fedopt_paper.published import METHOD_NAMES

SLOW = ("fedadam", "fedyogi")
VARIANTS = {  # names of entries
    "beta2 = 0.9": "beta2_0.9",
    "beta2 = 0.999": "beta2_0.999",
    "update rule of the authors' code": "as_run",
}


def slow_starters(results: Results) -> Section:
    """Test five explanations on real questions."""
    grids = method_grids(joined_records(results, (*GRIDS, *MORE_POINTS, TAU)))
    tables = {
        "gaps": _gap_table(results, grids),
        "length": _length_table(results, grids),
        "variants": _variants_table(results, grids),
        "halving": _halving_table(grids),
        "seeded": _seeded_table(results),
    }
    return Section(
        "slow",
        "Why FedAdam and FedYogi are behind FedAdagrad in short runs on real questions",
        tables,
        _explanations(results, grids),
        "^so_lr/(beta2|as_run|seeds)",
    )


def _explanations(results: Results, grids: dict[str, RateGrid]) -> dict[str, rules.Verdict]:
    """Return what each explanation changes, in points of recall at 5."""
    adaptive = {m: best_full_runs(results, m) for m in ("fedadagrad", *SLOW)}
    verdicts = {}
    if all(adaptive.values()):
        at_150 = {m: values_at(records, 150) for m, records in adaptive.items()}
        early = [paired_difference(at_150[method], at_150["fedadagrad"]) for method in SLOW]
        late = [difference(adaptive[method], adaptive["fedadagrad"]) for method in SLOW]
        texts = [markdown.difference_text(gap, "recall_at_5") for gap in (*early, *late)]
        verdicts["number of rounds"] = rules.Verdict(
            rules.MEASURED,
            f"FedAdam and FedYogi − FedAdagrad: {texts[0]} and {texts[1]} points at round 150, "
            f"{texts[2]} and {texts[3]} points in the last 100 of 1,500 rounds ({SEEDS} seeds)",
        )
    by_tau = {m: [_value_at_150(grids, m, SEARCHED[m][0], tau) for tau in (-3, -5)] for m in SLOW}
    if all(value is not None for values in by_tau.values() for value in values):
        gains = [_text((small or 0.0) - (large or 0.0)) for large, small in by_tau.values()]
        verdicts["tau = 1e-5 instead of 1e-3"] = rules.Verdict(
            rules.MEASURED, f"FedAdam {gains[0]}, FedYogi {gains[1]} points at round 150"
        )
    base = {method: _default_trials(grids, method) for method in SLOW}
    for label, name in VARIANTS.items():
        changed = {method: _variant_trials(results, name, method) for method in SLOW}
        if all(changed.values()) and all(base.values()):
            gains = [_text(_best_value(changed[m]) - _best_value(base[m])) for m in SLOW]
            verdicts[label] = rules.Verdict(
                rules.MEASURED,
                f"FedAdam {gains[0]}, FedYogi {gains[1]} points (one seed, best of four server rates)",
            )
    return verdicts or {"all": rules.not_run("grids", 0, 1)}


SEARCHED = {"fedadagrad": (0.5, -4), "fedadam": (-0.5, -3), "fedyogi": (-0.5, -3)}  # by the earlier search


def _gap_table(results: Results, grids: dict[str, RateGrid]) -> str:
    """Return the gap to FedAdagrad with the settings of the earlier search, with a smaller tau, and later."""
    adagrad = _value_at_150(grids, "fedadagrad", *SEARCHED["fedadagrad"])
    rows = []
    for label, tau in (("selected by the earlier search, tau = 1e-3", -3), ("the same with tau = 1e-5", -5)):
        values = [_value_at_150(grids, m, SEARCHED[m][0], tau) for m in SLOW]
        cells = [ABSENT if v is None or adagrad is None else _text(v - adagrad) for v in values]
        rows.append([label, "150", "1", *cells])
    long = {m: best_full_runs(results, m) for m in ("fedadagrad", *SLOW)}
    early = [paired_difference(values_at(long[m], 150), values_at(long["fedadagrad"], 150)) for m in SLOW]
    late = [difference(long[m], long["fedadagrad"]) for m in SLOW]
    label = "the same, FedAdagrad with tau = 1e-5"
    for rounds, gaps in (("150", early), ("1,425 to 1,500", late)):
        rows.append([label, rounds, str(SEEDS), *(markdown.difference_text(g, "recall_at_5") for g in gaps)])
    header = ["settings", "round", "seeds", *(f"{METHOD_NAMES[m]} − FedAdagrad" for m in SLOW)]
    return markdown.table(header, rows)


def _value_at_150(grids: dict[str, RateGrid], method: str, server: float, tau: float) -> float | None:
    """Return the result at round 150 with the paper's client rate."""
    trials = grids[method].trials if method in grids else ()
    found = [t for t in trials if t.point == f"client_lr=2 server_lr={server:g} tau={tau:g}"]
    return value_at(found[0].group.records[0], 150) if found else None


def _text(gain: float) -> str:
    return markdown.difference_text(Interval(gain, None, 1), "recall_at_5")


def _default_trials(grids: dict[str, RateGrid], method: str) -> list[RateTrial]:
    """Return the trials with the points of the sweeps that change beta2 or the variant."""
    return [
        t
        for t in (grids[method].trials if method in grids else ())
        if t.client_lr == 100 and t.tau == HEAT_MAP_TAU and 0.09 < t.server_lr < 3.3
    ]


def _variant_trials(results: Results, name: str, method: str) -> Sequence[RateTrial]:
    entry = results.get(f"so_lr/{name}")
    grid = method_grids(entry.records).get(method) if entry and entry.complete else None
    return grid.trials if grid else ()


def _best_value(trials: Sequence[RateTrial]) -> float:
    return max((t.result for t in trials if t.result is not None), default=0.0)


def _length_table(results: Results, grids: dict[str, RateGrid]) -> str:
    rounds = (50, 100, 150, 200, 300, 500, 1000, 1500)
    rows = []
    for method in ("fedadagrad", *SLOW, "fedavg"):
        trial = grids[method].selected_by_papers_rule if method in grids else None
        records = best_full_runs(results, method) or (list(trial.group.records) if trial else [])
        rows.append([METHOD_NAMES[method], *(text_at(records, r) for r in rounds)])
    return markdown.table(["round", *(f"{r:,}" for r in rounds)], rows)


def _variants_table(results: Results, grids: dict[str, RateGrid]) -> str:
    rows = []
    for method in SLOW:
        variants = [_variant_trials(results, name, method) for name in VARIANTS.values()]
        cells = [_best_text(trials) for trials in (_default_trials(grids, method), *variants)]
        rows.append([METHOD_NAMES[method], *cells])
    return markdown.table(["", "beta2 = 0.99, the paper's update rule", *VARIANTS], rows)


def _seeded_table(results: Results) -> str:
    """Return what the changes with several seeds add to recall at 5; "" until all have run."""
    rows = []
    for method in SLOW:
        runs = {name: finished(results, f"so_lr/seeds/{name}/{method}") for name in SEEDED_CHANGES}
        base, *changed = [found.get(method, []) for found in runs.values()]
        gaps = [difference(records, base) for records in changed]
        texts = [markdown.difference_text(gap, "recall_at_5") for gap in gaps]
        rows.append([METHOD_NAMES[method], markdown.value_text(mean_interval(base), "recall_at_5"), *texts])
    labels = [label for label, name in VARIANTS.items() if name in SEEDED_CHANGES]
    return markdown.table(["", "recall at 5, %", *labels], rows)


def _best_text(trials: Sequence[RateTrial]) -> str:
    values = [trial.result for trial in trials if trial.result is not None]
    return f"{max(values) * 100:.1f}" if values else ABSENT


def _halving_table(grids: dict[str, RateGrid]) -> str:
    """Compare the choice of the full grid with those of halving, by the training losses at the rungs."""
    rungs = halving_rungs(TUNING_ROUNDS)
    rows = []
    for method in ("fedadagrad", *SLOW, "fedavgm", "fedavg"):
        trials = [
            t
            for t in (grids[method].trials if method in grids else ())
            if t.train_loss is not None and not t.state and t.tau in (None, HEAT_MAP_TAU)
        ]
        if trials:
            best = _halve(trials, rungs[-1:])
            places = [str(_order(trials, rung).index(best) + 1) for rung in rungs[:-1]]
            chosen = [_halve(trials, rungs[first:]) for first in (0, 2)]
            texts = [f"{_rates_text(t)}: {(t.value or 0) * 100:.1f}" for t in (best, *chosen)]
            rows.append([METHOD_NAMES[method], str(len(trials)), texts[0], *places, *texts[1:]])
    header = ["", "trials", "full grid", *(f"rank at round {rung}" for rung in rungs[:-1])]
    header += [f"halving from round {rungs[first]}" for first in (0, 2)]
    return markdown.table(header, rows)


def _order(trials: Sequence[RateTrial], round: int) -> list[RateTrial]:
    """Sort trials by the mean training loss up to a round."""
    losses = {trial.point: mean_train_loss(trial.group.records[0], round) for trial in trials}
    return sorted(trials, key=lambda trial: losses[trial.point] or float("inf"))


def _halve(trials: Sequence[RateTrial], rungs: Sequence[int]) -> RateTrial:
    """Return the trial that successive halving with these rungs selects."""
    for rung in rungs[:-1]:
        trials = _order(trials, rung)[: -(-len(trials) // REDUCTION)]
    return _order(trials, rungs[-1])[0]


def _rates_text(trial: RateTrial) -> str:
    return f"{log10(trial.client_lr):g}, {log10(trial.server_lr):g}".replace("-", "−")
