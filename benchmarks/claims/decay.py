"""Decay of the client rate, and centralized training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims import markdown, rules
from claims.figures import Axis
from claims.results import Results
from claims.section import Runs, Section, curve_figure, difference, finished, mean_interval
from claims.selection import rates_text
from claims.writers_plan import SCHEDULES
from fedopt.formatting import ABSENT
from fedopt.reports import Interval, log10
from fedopt.runs.records import RunRecord
from fedopt_paper.published import METHOD_NAMES, OPTIMIZERS

HEADER = ["", "constant", "decay", "difference"]
WITH_DECAY = "centralized training with decay"


def decay(results: Results) -> Section:
    """Compare a constant client rate with exponential decay, and both with centralized training."""
    constant, decayed = (finished(results, f"writers/seeds/{name}/[a-z]+") for name in SCHEDULES)
    by_rate = _centralized(results, "writers/centralized(_more)?", "last")
    central = _best(by_rate)
    short_constant = finished(results, r"digits/[a-z]+-\d")
    short_decayed = finished(results, r"decay/digits/[a-z]+-\d")
    short_constant = {m: _common_seeds(runs, short_decayed.get(m, [])) for m, runs in short_constant.items()}
    short_central = [
        mean_interval(finished(results, f"decay/centralized/{name}").get("centralized", []), "last")
        for name in SCHEDULES
    ]
    characters = finished(results, "characters/.*"), finished(results, "decay/characters/.*")
    central_characters = [
        _centralized(results, f"decay/characters_centralized/{name}", "value") for name in SCHEDULES
    ]
    best_characters = [_best(by_rate) for by_rate in central_characters]
    verdicts = {
        "digits, small network, 1,500 rounds": _judged(constant, decayed, central, "value"),
        "digits, round 200": _judged(short_constant, short_decayed, short_central[1], "last", WITH_DECAY),
        "characters, synthetic, 300 rounds": rules.limit_to_weaker(
            _judged(*characters, best_characters[1], "value", WITH_DECAY), rules.SYNTHETIC_DATA
        ),
    }
    tables = {
        "writers": _writers_table(results, constant, decayed, central),
        "digits": _with_centralized(_rows(short_constant, short_decayed, "last"), short_central),
        "characters": _with_centralized(_rows(*characters, "value"), best_characters),
        "centralized": _centralized_table({"centralized training": by_rate}),
        "centralized_characters": _centralized_table(
            dict(zip(("constant rate", "decay"), central_characters, strict=True))
        ),
        "centralized_points_lost": _points_lost(*best_characters),
        **_ranges(constant, decayed, central),
    }
    line = ("centralized", central.mean * 100) if central else None
    panels = {
        "constant client rate": {m: constant[m] for m in OPTIMIZERS if m in constant},
        "decay, × 0.1 every 500 rounds": {m: decayed[m] for m in OPTIMIZERS if m in decayed},
    }
    return Section(
        "decay",
        "Decay of the client rate helps and approaches centralized training",
        tables,
        verdicts,
        r"^decay/|^digits/fed[a-z]+-\d|^characters/fed[a-z]+-0|^writers/(constant|decay|seeds|centralized)",
        curve_figure(
            "decay", "Real digits, small network", panels, None, dict.fromkeys(panels, Axis(93, 98, line))
        ),
    )


def _common_seeds(runs: Sequence[RunRecord], others: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs whose seeds have run with decay too."""
    seeds = {record.info["seed"] for record in others}
    return [record for record in runs if record.info["seed"] in seeds]


def _judged(
    constant: Runs,
    decayed: Runs,
    central: Interval | None,
    name: str,
    centralized: str = "centralized training",
) -> rules.Verdict:
    gaps = {}
    for method in OPTIMIZERS:
        ends = [mean_interval(runs.get(method, []), name) for runs in (constant, decayed)]
        if central and ends[0] and ends[1]:
            gaps[method] = (central.mean - ends[0].mean, central.mean - ends[1].mean)
    return rules.judge_decay(_gains(constant, decayed, name), gaps, centralized)


def _gains(constant: Runs, decayed: Runs, name: str) -> dict[str, Interval | None]:
    return {m: difference(decayed.get(m, []), constant.get(m, []), name) for m in OPTIMIZERS}


def _centralized(results: Results, pattern: str, name: str) -> dict[float, Interval]:
    """Return a result of centralized training by log10 of the client rate. Some rates have several seeds."""
    runs = finished(results, pattern).get("centralized", [])
    by_rate: dict[float, dict[int, RunRecord]] = {}
    for run in runs:
        by_rate.setdefault(round(log10(run.config["client.lr"]), 2), {})[run.info["seed"]] = run
    means = {rate: mean_interval(list(seeds.values()), name) for rate, seeds in sorted(by_rate.items())}
    return {rate: mean for rate, mean in means.items() if mean}


def _best(by_rate: Mapping[float, Interval]) -> Interval | None:
    return max(by_rate.values(), key=lambda mean: mean.mean, default=None)


def _centralized_table(rows: Mapping[str, Mapping[float, Interval]]) -> str:
    """Return a table of results by client rate. All rows have the same rates."""
    rates = next(iter(rows.values()))
    header = ["log10 client rate", *map(markdown.number, rates)]
    cells = [
        [name, *(markdown.value_text(by_rate.get(rate), "accuracy") for rate in rates)]
        for name, by_rate in rows.items()
    ]
    return markdown.table(header, cells) if rates else ""


def _with_centralized(rows: Sequence[Sequence[str]], central: Sequence[Interval | None]) -> str:
    """Return the table of a constant rate and decay, with the best centralized training as last row."""
    last = ["Centralized", *(markdown.value_text(value, "accuracy") for value in central), ABSENT]
    return markdown.table(HEADER, [*rows, last])


def _ranges(constant: Runs, decayed: Runs, central: Interval | None) -> dict[str, str]:
    """Return the largest gain of decay, the widths of the intervals, and the lead of centralized training."""
    gains = {m: gain for m, gain in _gains(constant, decayed, "value").items() if gain}
    if not gains or central is None:
        return {"largest_gain": ABSENT, "widths": ABSENT, "lead": ABSENT}
    best = max(gains, key=lambda m: gains[m].mean)
    widths = [gain.half_width or 0.0 for gain in gains.values()]
    means = [mean for m in OPTIMIZERS if (mean := mean_interval(constant.get(m, [])))]
    leads = [central.mean - mean.mean for mean in means]
    return {
        "largest_gain": f"{_two_digits(gains[best])} points ({METHOD_NAMES[best]})",
        "widths": f"± {min(widths) * 100:.1f} to ± {max(widths) * 100:.1f}",
        "lead": f"{min(leads) * 100:.1f} to {max(leads) * 100:.1f}",
    }


def _points_lost(constant: Interval | None, decayed: Interval | None) -> str:
    """Return how many points the accuracy is lower with decay."""
    return f"{(constant.mean - decayed.mean) * 100:.1f}" if constant and decayed else ABSENT


def _two_digits(gain: Interval) -> str:
    """Format a gain in points with two digits: with one, an interval may seem to contain 0."""
    width = "" if gain.half_width is None else f" ± {gain.half_width * 100:.2f}"
    return f"{gain.mean * 100:+.2f}{width}".replace("-", "−")


def _writers_table(results: Results, constant: Runs, decayed: Runs, central: Interval | None) -> str:
    rows = []
    for method, row in zip(OPTIMIZERS, _rows(constant, decayed, "value"), strict=True):
        rates = [rates_text(runs.get(method, [])) for runs in (constant, decayed)]
        rows.append([*row, *rates, _better_points(results, method)])
    rows.append(["Centralized", markdown.value_text(central, "accuracy"), *[ABSENT] * 5])
    return markdown.table([*HEADER, "rates, constant", "rates, decay", "decay is better at"], rows)


def _better_points(results: Results, method: str) -> str:
    """Return at how many points of the sweeps the run with decay has the higher accuracy."""
    entries = [results.get(f"writers/{name}/{method}") for name in SCHEDULES]
    values = [
        {(r.config["client.lr"], r.config["server.lr"]): r.info["value"] for r in entry.done} if entry else {}
        for entry in entries
    ]
    points = values[0].keys() & values[1].keys()
    better = sum(values[1][point] > values[0][point] for point in points)
    return f"{better} of {len(points)} settings" if points else ABSENT


def _rows(constant: Runs, decayed: Runs, name: str) -> list[list[str]]:
    return [[METHOD_NAMES[method], *_cells(constant, decayed, method, name)] for method in OPTIMIZERS]


def _cells(constant: Runs, decayed: Runs, method: str, name: str) -> list[str]:
    runs = constant.get(method, []), decayed.get(method, [])
    texts = [markdown.value_text(mean_interval(one, name), "accuracy") for one in runs]
    return [*texts, markdown.difference_text(difference(runs[1], runs[0], name), "accuracy")]
