"""The heat maps of the report page, as HTML tables whose cells are coloured.

Tables rather than pictures, because then a cell can be reached by keyboard, is read aloud with its rates,
and is there without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedopt.analysis.heatmap import Ease, Grid, HeatMap, Trial, distance_of, ease, exponent, grids, heat_map
from fedopt.analysis.summary import TRAIN_LOSS
from fedopt.formatting import ABSENT, Unit, setting_text, unit_of
from fedopt.report.colours import Scale, background, scale_of
from fedopt.report.sections import tag, units_kept
from fedopt.runs.discover import selection_of
from fedopt.runs.records import LAST_ROUNDS, RunRecord

FULLEST = 30  # more values on an axis than this are not a grid
EMPTIEST = 0.25  # nor are trials that fill less than this share of their table
DENSE = 9  # values on the client's axis; with more, a phone shows colours without numbers
MARKS = {"diverged": "×", "failed": "!", "pruned": "‖", "unfinished": "…"}
STAR, RING = "★", "○"


def heat_maps(records: Sequence[RunRecord]) -> str:
    """The section of heat maps and of how easy each method is to tune; nothing where no rates were tried."""
    select = selection_of(records)
    metric = _compared(records, select)
    tuned = [grid for grid in grids(records, metric) if _maps(grid)]
    values = [t.value for grid in tuned for t in grid.trials if t.done and t.value is not None]
    if not tuned:
        return ""
    unit = unit_of(metric)
    scale = scale_of(values, tuned[0].higher_is_better) if values else Scale(0.0, 1.0, False)
    cards = "".join(_card(at, grid, scale, unit, metric) for at, grid in enumerate(tuned))
    ours = ", by which this sweep selected"
    note = (
        f"Each cell is a trial, coloured by its test {unit.name} (mean over the last {LAST_ROUNDS} rounds, "
        "or all if there are fewer); rates are in log10, and all maps share one scale. "
        f"{STAR} best {unit.name}{ours if select == metric else ''}. "
        f"{RING} the paper's choice, the smallest train loss{ours if select == TRAIN_LOSS else ''}. "
        f"{_legend(tuned)} "
        f"{_lengths(tuned)}Point at a cell, or move to it with Tab and the arrow keys, to see its trial."
    )
    return (
        f'<section><h2 id="rates">Learning rates{tag(records)}</h2><p class="quiet">{units_kept(note)}</p>'
        f'{_bar(scale, unit) if values else ""}<div class="maps">{cards}</div>'
        f"{_ease(tuned, unit, metric, records)}</section>"
    )


def _compared(records: Sequence[RunRecord], select: str | None) -> str:
    """What the maps show: what a sweep selected by, if that is a metric of the runs, else the task's metric.

    The train loss selects and is not shown, as in the paper's figures.
    """
    measured = any(select in line for record in records for line in record.test[-1:])
    return select if select and select != TRAIN_LOSS and measured else records[0].metric


def _maps(grid: Grid) -> list[HeatMap]:
    """The maps of a grid that are worth drawing; random trials do not fill a table."""
    found = [heat_map(grid, tau) for tau in grid.taus]
    return [
        m
        for m in found
        if min(len(m.client_rates), len(m.server_rates)) > 1
        and max(len(m.client_rates), len(m.server_rates)) <= FULLEST
        and len(m.cells) >= EMPTIEST * len(m.client_rates) * len(m.server_rates)
    ]


def _legend(tuned: Sequence[Grid]) -> str:
    states = {trial.state for grid in tuned for trial in grid.trials}
    words = [f"{mark} {state}" for state, mark in MARKS.items() if state in states]
    words += (
        ["? no finite result"] if any(t.done and t.value is None for g in tuned for t in g.trials) else []
    )
    return "; ".join([*words, "blank: no trial"]).capitalize() + "."


def _lengths(tuned: Sequence[Grid]) -> str:
    """Says so where trials ran for different numbers of rounds, as those of a search by halving do."""
    trials = [trial for grid in tuned for trial in grid.trials if trial.done]
    rounds = sorted({record.rounds for trial in trials for record in trial.group.records})
    return f"Trials ran for {rounds[0]} to {rounds[-1]} rounds. " if len(rounds) > 1 else ""


def _bar(scale: Scale, unit: Unit) -> str:
    """The colour bar, worst to best from left to right."""
    stops = ", ".join(background(at / 10)[0] for at in range(11))
    shown = [unit.text(value) for value in (scale.worst, scale.middle, scale.best)]
    ticks = "".join(f"<span>{units_kept(text)}</span>" for text in shown)
    log = ", log scale" if scale.log else ""
    return (
        f'<div class="colourbar"><p>test {escape(unit.name)}{log}; brighter is better</p>'
        f'<div class="ramp" style="background:linear-gradient(to right, {stops})"></div>'
        f'<div class="ticks">{ticks}</div></div>'
    )


def _card(at: int, grid: Grid, scale: Scale, unit: Unit, metric: str) -> str:
    """One method: its maps, of which the one with the best trial is shown first, and the trial pointed at."""
    found = _maps(grid)
    best = grid.best
    first = next((m for m in found if best is not None and m.tau == best.tau), found[0])
    choice = f'<p class="tau">tau {setting_text(first.tau)}</p>' if first.tau is not None else ""
    if len(found) > 1:
        options = "".join(
            f'<option value="{place}"{" selected" if m is first else ""}>{setting_text(m.tau)}'
            f"{' (the best trial)' if m is first and best is not None else ''}</option>"
            for place, m in enumerate(found)
        )
        choice = f'<p class="tau"><label>tau <select data-maps="map-{at}">{options}</select></label></p>'
    tables = "".join(
        f'<div class="heatbox" data-map="{place}"{"" if m is first else " hidden"}>'
        f"{_table(m, f'map-{at}-{place}', scale, unit)}"
        f'<p class="quiet">{units_kept(_near(ease(m.grid, distance_of(metric))))}</p></div>'
        for place, m in enumerate(found)
    )
    return (
        f'<figure class="card map" id="map-{at}">'
        f'<div class="maphead"><h3>{escape(grid.method)}</h3>{choice}</div>'
        f'{tables}<dl class="trial" aria-live="polite"></dl>{_alternative(grid, unit)}</figure>'
    )


def _near(found: Ease) -> str:
    if found.share is None:
        return f"No trial of {found.total} is done."
    share = f"{found.within} of {found.total} trials ({found.share * 100:.0f} %)"
    return f"{share} within {found.distance.text} of this map's best."


def _table(m: HeatMap, name: str, scale: Scale, unit: Unit) -> str:
    """The map itself: server rates from high to low, client rates from left to right."""
    best, chosen = m.grid.best, m.grid.chosen
    entry = best or next(iter(m.cells.values()))
    dense = " dense" if len(m.client_rates) > DENSE else ""
    rows = ""
    for row, server in enumerate(reversed(m.server_rates)):
        side = (
            f'<th class="axis side" rowspan="{len(m.server_rates)}"><span>server rate, log10</span></th>'
            if row == 0
            else ""
        )
        cells = ""
        for client in m.client_rates:
            trial = m.cells.get((client, server))
            marks = "".join(mark for mark, one in ((STAR, best), (RING, chosen)) if trial and one is trial)
            cells += _cell(trial, client, server, scale, unit, marks, enter=trial is entry)
        rows += f'<tr>{side}<th scope="row">{exponent(server)}</th>{cells}</tr>'
    foot = "".join(f'<th scope="col">{exponent(client)}</th>' for client in m.client_rates)
    span = len(m.client_rates)
    width = f"{min(40.0, 4.4 + 3.4 * span):.1f}rem"
    tau = "" if m.tau is None else f", tau {setting_text(m.tau)}"
    label = f"{m.method}{tau}: test {unit.name} by client rate (columns) and server rate (rows), in log10"
    return (
        f'<table class="heat{dense}" id="{name}" role="grid" aria-label="{escape(label)}" '
        f'style="max-width:{width}"><tbody>{rows}<tr><td></td><td></td>{foot}</tr>'
        f'<tr><td></td><td></td><th class="axis" colspan="{span}">client rate, log10</th></tr>'
        "</tbody></table>"
    )


def _cell(
    trial: Trial | None, client: float, server: float, scale: Scale, unit: Unit, marks: str, *, enter: bool
) -> str:
    where = f"client rate {setting_text(client)}, server rate {setting_text(server)}"
    if trial is None:
        return (
            f'<td class="cell blank" role="gridcell" tabindex="-1" aria-label="{where}: no trial" '
            f'data-trial="client rate\t{_rate(client)}\nserver rate\t{_rate(server)}\ntrial\tnone"></td>'
        )
    facts = _facts(trial, unit, marks)
    label = f"{where}: {facts['status']}, {unit.name} {facts[unit.name]}"
    label += ", best" if STAR in marks else ""
    label += ", the paper's choice" if RING in marks else ""
    if trial.done and trial.value is not None:
        background, ink = scale.colour(trial.value)
        style = f' style="background:{background};color:{ink}"'
        text = f"{trial.value * unit.factor:.{min(unit.digits, 3)}f}"
    else:
        style, text = "", MARKS.get(trial.state, "?")
    kind = "cell" + ("" if style else " ended") + (" marked" if marks else "")
    lines = "\n".join(f"{key}\t{value}" for key, value in facts.items())
    mark = f'<span class="mark" aria-hidden="true">{marks}</span>' if marks else ""
    return (
        f'<td class="{kind}" role="gridcell" tabindex="{0 if enter else -1}"{style} '
        f'aria-label="{escape(label)}" data-trial="{escape(lines)}">'
        f'{mark}<span class="number">{text}</span></td>'
    )


def _facts(trial: Trial, unit: Unit, marks: str = "") -> dict[str, str]:
    """What is known of a trial, by name."""
    records = trial.group.records
    rounds = sorted({record.rounds for record in records})
    facts = {"client rate": _rate(trial.client_lr), "server rate": _rate(trial.server_lr)}
    facts |= {} if trial.tau is None else {"tau": setting_text(trial.tau)}
    facts[unit.name] = ABSENT if trial.value is None else unit.text(trial.value)
    facts["train loss"] = ABSENT if trial.train_loss is None else f"{trial.train_loss:.4g}"
    facts["status"] = (trial.state or "done") + f", {rounds[-1]} rounds"
    if len(records) > 1:
        facts["seeds"] = str(len(records))
    notes = [
        text for mark, text in ((STAR, f"best {unit.name}"), (RING, "the paper's choice")) if mark in marks
    ]
    facts |= {"marked as": " and ".join(notes)} if notes else {}
    return facts | {"run": ", ".join(str(record.path) for record in records)}


def _rate(rate: float) -> str:
    return f"{setting_text(rate)} (10^{exponent(rate)})"


def _alternative(grid: Grid, unit: Unit) -> str:
    """The same trials as a plain table, for readers who do not point."""
    names = ["client rate", "server rate", "tau", unit.name, "train loss", "status", "run"]
    if grid.taus == [None]:
        names.remove("tau")
    rows = ""
    for trial in grid.trials:
        facts = _facts(trial, unit)
        rows += (
            "<tr>" + "".join(f"<td>{units_kept(facts.get(name, ABSENT))}</td>" for name in names) + "</tr>"
        )
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    label = escape(f"Trials of {grid.method}")
    return (
        f"<details><summary>{len(grid.trials)} trials as a table</summary>"
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _ease(tuned: Sequence[Grid], unit: Unit, metric: str, records: Sequence[RunRecord]) -> str:
    """How easy each method is to tune: the share of its grid near its best, as number and bar."""
    distance = distance_of(metric)
    several_taus = any(len(grid.taus) > 1 for grid in tuned)
    heads = [
        "method",
        f"best {unit.name}",
        "with rates",
        "the paper's choice",
        "near its best",
        "share of the grid",
    ]
    heads += ["with the best tau only"] if several_taus else []
    rows = ""
    for grid in tuned:
        whole, best, chosen = ease(grid, distance), grid.best, grid.chosen
        share = whole.share or 0.0
        cells = [
            ABSENT if best is None or best.value is None else unit.text(best.value),
            _point(best),
            ABSENT
            if chosen is None or chosen.value is None
            else f"{unit.text(chosen.value)} at {_point(chosen)}",
            f"{whole.within} of {whole.total}",
        ]
        rows += f'<tr><th scope="row">{escape(grid.method)}</th>'
        rows += "".join(f"<td>{units_kept(cell)}</td>" for cell in cells)
        rows += (
            '<td class="share"><span class="bar" aria-hidden="true">'
            f'<span style="width:{share:.1%}"></span></span>'
            f"<span>{units_kept(f'{share * 100:.0f} %')}</span></td>"
        )
        if several_taus:
            part = ease(grid.at(best.tau), distance) if best is not None and len(grid.taus) > 1 else None
            rows += f"<td>{f'{part.within} of {part.total}' if part else ABSENT}</td>"
        rows += "</tr>"
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    note = (
        f"The share of a method's trials whose {unit.name} is within {distance.text} of that method's best. "
        "Trials that diverged, failed or were pruned count as not within; those still running do not count. "
        "Rates: log10 of client and server."
    )
    return (
        f'<h3 class="below" id="ease">How easy each method is to tune{tag(records)}</h3>'
        f'<p class="quiet">{units_kept(note)}</p>'
        '<div class="scroll card" tabindex="0" role="region" aria-labelledby="ease">'
        f'<table class="ease"><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _point(trial: Trial | None) -> str:
    if trial is None:
        return ABSENT
    tau = "" if trial.tau is None else f", tau {setting_text(trial.tau)}"
    return f"{exponent(trial.client_lr)}, {exponent(trial.server_lr)}{tau}"
