"""The head of the report page, the frames of its charts, and the commands, as HTML.

Every string that comes from a file passes through `escape` on its way into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedopt.analysis.seeds import seed_of
from fedopt.analysis.summary import Summary, target_value
from fedopt.display.table import NOISE, against_best, data_name
from fedopt.formatting import ABSENT, unit_of
from fedopt.report.curves import line_name
from fedopt.report.line_styles import MANY, Drawn, swatch
from fedopt.runs.records import LAST_ROUNDS, RunRecord


def heading(title: str, records: Sequence[RunRecord], summaries: Sequence[Summary]) -> str:
    """Title, badge, the facts that the runs share, and the result in one sentence."""
    badge = '<p class="badge">synthetic data</p>' if is_synthetic(records) else ""
    configurations = {"Configurations": str(len(summaries))} if len(summaries) < len(records) else {}
    seeds = sorted({seed_of(record) for record in records})
    facts = {
        "Task": _distinct(records, "task"),
        "Data": data_name(records),
        "Runs": str(len(records)),
        **configurations,
        "Rounds": _span(sorted({record.rounds for record in records})),
        "Seed" if len(seeds) == 1 else "Seeds": _span(seeds),
        "Parameters": _parameters(records),
        "Date": _ends(sorted({str(record.info.get("started", ABSENT))[:10] for record in records})),
        "fedopt": _distinct(records, "fedopt"),
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    return (
        f'<header><h1>{escape(title)}</h1>{badge}<dl class="facts">{items}</dl>'
        f'<p class="lead">{units_kept(_lead(summaries))}</p></header>'
    )


def is_synthetic(records: Sequence[RunRecord]) -> bool:
    return any(record.data == "synthetic" for record in records)


def tag(records: Sequence[RunRecord]) -> str:
    """Stands beside every title over numbers from generated data, so that no picture of them can lose it."""
    return ' <span class="tag">synthetic data</span>' if is_synthetic(records) else ""


def units_kept(text: str) -> str:
    """Escaped, and with no break between a number and its per cent sign."""
    return escape(text).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;")


def _distinct(records: Sequence[RunRecord], key: str) -> str:
    return ", ".join(dict.fromkeys(str(record.info.get(key, ABSENT)) for record in records))


def _span(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"


def _ends(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{words[0]} to {words[-1]}"


def _parameters(records: Sequence[RunRecord]) -> str:
    counts = {record.info.get("params") for record in records}
    known = sorted(count for count in counts if isinstance(count, int))
    return ", ".join(f"{count:,}" for count in known) or ABSENT


def _lead(summaries: Sequence[Summary]) -> str:
    """The result in words."""
    best = summaries[0]
    if best.value is None or best.failed:
        return "No run has a result yet." + _failures(summaries)
    unit = unit_of(best.record.metric)
    last = min(LAST_ROUNDS, best.record.rounds)
    mean = f"mean over the evaluations of the last {last} rounds"
    n = len(best.counted)
    mean += f", over {n} seeds, with its 95 % interval" if n > 1 else ""
    result = f"{best.label}, with {unit.name} {unit.text(best.value, best.halves.get('value'))} ({mean})"
    several = any(len(summary.group.records) > 1 for summary in summaries)
    things = "configurations" if several else "runs"
    one = "One configuration" if several else "One run"
    first = f"Best of {len(summaries)} {things}: {result}." if len(summaries) > 1 else f"{one}: {result}."
    return f"{first}{_failures(summaries)}{_noise(summaries)}"


def _noise(summaries: Sequence[Summary]) -> str:
    """How many cannot be told from the best; the table of results says which, and how it was decided."""
    near = against_best(summaries).count(NOISE)
    return f" {near} of the {len(summaries) - 1} others within noise of it." if near else ""


def _failures(summaries: Sequence[Summary]) -> str:
    text = ""
    for state in ("diverged", "failed", "pruned"):
        those = [summary.label for summary in summaries if summary.state == state]
        if those and len(summaries) > MANY:
            text += f" {state.capitalize()}: {len(those)} of {len(summaries)}."
        elif those:
            text += f" {state.capitalize()}: {', '.join(those)}."
    return text


def figures(summaries: Sequence[Summary], shown: Drawn, window: int) -> str:
    """The frames of the three charts, which the page's script fills."""
    record = summaries[0].record
    name = unit_of(record.metric).name
    target = target_value(summaries)
    dotted = "" if target is None else f" Dotted: the target, {unit_of(record.metric).rounded(target)}."
    better = "Higher is better." if record.higher_is_better else "Lower is better."
    band = any(len(summary.counted) > 1 for summary in shown.named)
    spread = " Line: mean over seeds; band: its 95 % interval." if band else ""
    smooth = f"Mean of the last {window} rounds" if window > 1 else "Each round"
    faint = "; faint: each round." if window > 1 and not band and not shown.grey else "."
    sent = "Megabytes sent down and up, all clients together."
    others = _others(shown)
    frames = [
        ("metric-by-round", f"Test {name} by round", better + dotted + spread + others),
        ("loss-by-round", "Train loss by round", smooth + faint + spread + others),
        ("metric-by-megabytes", f"Test {name} by communication", sent + dotted + spread + others),
    ]
    return "".join(_figure(*frame, summaries, shown, wide=at == 0) for at, frame in enumerate(frames))


def _others(shown: Drawn) -> str:
    if not shown.grey and not shown.left_out:
        return ""
    rest = f"; {shown.left_out} more are not drawn" if shown.left_out else ""
    return f" Coloured: the best of each algorithm; grey: {len(shown.grey)} others{rest}."


def _figure(
    name: str, title: str, note: str, summaries: Sequence[Summary], shown: Drawn, *, wide: bool
) -> str:
    """A chart's frame: title, what is drawn, a legend whose entries hide and show lines, a place to draw."""
    records = [record for summary in summaries for record in summary.group.records]
    entries = "".join(
        f'<button type="button" data-run="{at}" aria-pressed="true">{swatch(shown.place(s))}'
        f"<span>{escape(line_name(s))}</span></button>"
        for at, s in enumerate(shown.named)
    )
    label = f"{title}, a line for each of {len(shown.named)} runs; the numbers are in the table of results."
    return (
        f'<figure class="card{" wide" if wide else ""}"><h2>{escape(title)}{tag(records)}</h2>'
        f'<p class="quiet">{units_kept(note)}</p>'
        f'<div class="legend" role="group" aria-label="Runs shown in the charts">{entries}</div>'
        f'<div class="plot" id="{name}" role="img" aria-label="{escape(label)}"></div></figure>'
    )


def commands(summaries: Sequence[Summary], shown: Drawn) -> str:
    """How to make each run again, and the fingerprint by which to know that it is the same."""
    runs = [(summary, record) for summary in summaries for record in summary.group.records]
    blocks = "".join(_command(summary, record, shown) for summary, record in runs)
    listed = f'<div class="runs">{blocks}</div>'
    if len(runs) > MANY:
        listed = f"<details><summary>The commands of all {len(runs)} runs</summary>{listed}</details>"
    return f'<section><h2>Commands</h2><p class="quiet">Each makes its run again.</p>{listed}</section>'


def _command(summary: Summary, record: RunRecord, shown: Drawn) -> str:
    info = record.info
    command = str(info.get("command") or "(the command was not recorded)")
    message, fingerprint = str(info.get("message", "")), str(info.get("x_sha256", ""))
    seed = f", seed {seed_of(record)}" if len(summary.group.records) > 1 else ""
    text = f'<div class="card run"><h3>{run_name(summary, shown, summary.label + seed)}</h3>'
    text += f'<p class="bad">{escape(message)}</p>' if message else ""
    text += f"<pre><code>{escape(command)}</code></pre>"
    text += f'<p class="quiet">final parameters, sha256: {escape(fingerprint)}</p>' if fingerprint else ""
    return text + "</div>"


def run_name(summary: Summary, shown: Drawn, label: str) -> str:
    """A configuration's name with a piece of its line and what is wrong with it."""
    failed = " failed" if summary.failed else ""
    state = f'<span class="state{failed}">{escape(summary.note)}</span>' if summary.note else ""
    return f'<span class="name">{swatch(shown.place(summary))}<span>{escape(label)}{state}</span></span>'
