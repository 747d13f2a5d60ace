"""The comparison of runs as columns, their table for the terminal, and the words that explain it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedopt.analysis.seeds import within_noise
from fedopt.analysis.summary import NEAR_BEST, Summary, contenders, target_value
from fedopt.analysis.summary import summarise as summarise
from fedopt.formatting import ABSENT, column_format, unit_of
from fedopt.runs.records import LAST_ROUNDS, RunRecord

PIPE_WIDTH = 140  # columns
BEST, NOISE, WORSE, UNKNOWN = "best", "within noise", "worse", "noise unknown"
LONG_LABEL = 24  # characters; longer names may break into lines in a terminal

Better = Literal["higher", "lower"]
Show = Callable[[float], str]


class Cell(NamedTuple):
    text: str
    number: float | None
    best: bool


class Column(NamedTuple):
    """One column of the comparison, with a cell for each summary in their order."""

    title: str
    better: Better
    cells: list[Cell]


def columns(summaries: Sequence[Summary]) -> list[Column]:
    """What the tables show, with the best number of each column marked."""
    unit, target = unit_of(summaries[0].record.metric), target_value(summaries)
    goal = "target" if target is None else unit.rounded(target)
    better: Better = "higher" if summaries[0].record.higher_is_better else "lower"
    losses, times = (
        column_format([s.train_loss for s in summaries]),
        column_format([s.seconds for s in summaries]),
    )
    sent = column_format([None if s.bytes_total is None else s.bytes_total / 1e6 for s in summaries])
    return [
        _column(unit.name, summaries, "value", lambda s, n: unit.text(n, s.halves.get("value")), better),
        _column(
            "at the end",
            summaries,
            "at_the_end",
            lambda s, n: unit.text(n, s.halves.get("at_the_end")),
            better,
        ),
        _column(
            "train loss", summaries, "train_loss", lambda s, n: spread(losses, n, s.halves.get("train_loss"))
        ),
        _column(f"rounds to {goal}", summaries, "rounds_to_target", _rounds),
        _column("MB sent", summaries, "bytes_total", lambda s, n: sent(n / 1e6)),
        _column(f"MB to {goal}", summaries, "bytes_to_target", lambda s, n: sent(n / 1e6) + _some(s)),
        _column("seconds", summaries, "seconds", lambda s, n: times(n)),
    ]


def _column(
    title: str,
    summaries: Sequence[Summary],
    name: str,
    text: Callable[[Summary, float], str],
    better: Better = "lower",
) -> Column:
    """A column whose best eligible number is marked, unless most share it."""
    may_win = {id(group) for group in contenders([summary.group for summary in summaries])}
    numbers = [getattr(summary, name) for summary in summaries]
    eligible = [
        id(s.group) in may_win and not ("to_target" in name and s.met_target < len(s.counted))
        for s in summaries
    ]
    compared = [n for n, may in zip(numbers, eligible, strict=True) if may and n is not None]
    best = max(compared, default=None) if better == "higher" else min(compared, default=None)
    stands_out = 0 < 2 * compared.count(best) <= len(compared) if best is not None else False
    cells = [
        Cell(ABSENT if n is None else text(summary, n), n, stands_out and may and n == best)
        for summary, n, may in zip(summaries, numbers, eligible, strict=True)
    ]
    return Column(title, better, cells)


def _rounds(summary: Summary, mean: float) -> str:
    half = summary.halves.get("rounds_to_target")
    show: Show = "{:,.0f}".format if half is None else "{:,.1f}".format
    return spread(show, mean, half) + _some(summary)


def _some(summary: Summary) -> str:
    """Says so where only some of the seeds came to the target, which the mean is then over."""
    met, n = summary.met_target, len(summary.counted)
    return "" if met == n else f" ({met} of {n} seeds)"


def spread(show: Show, mean: float, half: float | None) -> str:
    """A mean, with half its interval where there is one."""
    return show(mean) if half is None else f"{show(mean)} ± {show(half)}"


def wide_console() -> Console:
    """A terminal as it is; a file or a pipe has room for a whole table, where rich would take 80 columns."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def comparison_table(records: Sequence[RunRecord], limit: int | None = None) -> Table:
    """The runs as a table for the terminal: one row each configuration, best first, best numbers bold.

    `limit` keeps that many rows. `explanation` says in words how to read it.
    """
    summaries = summarise(records)
    shown = [  # 100 columns wide, 80 with one seed
        column for column in columns(summaries) if not column.title.startswith("MB to")
    ]
    several = any(len(summary.group.records) > 1 for summary in summaries)
    table = Table(
        title=Text(headline(records), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0) if several else (0, 1),
    )
    table.add_column("algorithm", no_wrap=True)
    for column in shown:
        table.add_column(Text(column.title.replace(" %", "%")), justify="right")
    if several:
        table.add_column("seeds", justify="right")
    for at, summary in enumerate(summaries[:limit]):
        name = Text(textwrap.fill(summary.label, LONG_LABEL))
        if summary.note:
            name.append(
                "\n" + summary.note.replace(", ", "\n"),
                style="red" if summary.failed else "yellow",
            )
        cells = [column.cells[at] for column in shown]
        texts = [Text(cell.text.replace(" ± ", "±"), style="bold" if cell.best else "") for cell in cells]
        table.add_row(name, *texts, *([str(len(summary.counted))] if several else []))
    return table


def headline(records: Sequence[RunRecord]) -> str:
    """Task, rounds and data of the runs, in one line that always says when the data is synthetic."""
    rounds = sorted({record.rounds for record in records})
    span = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return f"{records[0].info['task']}, {span} rounds, {data_name(records)}"


def data_name(records: Sequence[RunRecord]) -> str:
    names = dict.fromkeys(record.data for record in records)
    return " and ".join("synthetic data" if name == "synthetic" else f"data {name}" for name in names)


def explanation(records: Sequence[RunRecord]) -> str:
    """How the numbers of the table are to be read, and which differences are within noise."""
    summaries = summarise(records)
    return f"{reading(summaries)} {noise_sentence(summaries)}".strip()


def reading(summaries: Sequence[Summary]) -> str:
    """What each column is."""
    record = summaries[0].record
    unit, target = unit_of(record.metric), target_value(summaries)
    name = unit.name[0].upper() + unit.name[1:]
    text = (
        f"{name} and train loss: means over the last {LAST_ROUNDS} rounds, or all if there are fewer; at the "
        "end: the last evaluation."
    )
    if any(summary.halves for summary in summaries):
        text += " Numbers of several seeds: the mean ± half its 95 % interval (Student's t)."
    if target is None:
        return text
    side = "at least" if record.higher_is_better else "at most"
    return (
        f"{text} Target: {side} {unit.rounded(target)}, within {NEAR_BEST * 100:.0f} % of the best run, "
        f"counted at the first evaluation that meets it. MB: sent down and up, all clients. "
        f"{ABSENT}: not met or not recorded."
    )


def against_best(summaries: Sequence[Summary]) -> list[str]:
    """For each summary, whether it differs from the best by more than seeds do; "" where it is not done."""
    best = summaries[0]
    if best.value is None or best.state:
        return [""] * len(summaries)
    verdicts = [BEST]
    for summary in summaries[1:]:
        noise = None if summary.state else within_noise(best.by_seed(), summary.by_seed())
        verdicts.append("" if summary.state else UNKNOWN if noise is None else NOISE if noise else WORSE)
    return verdicts


def noise_sentence(summaries: Sequence[Summary]) -> str:
    """Which configurations the seeds cannot tell from the best, in one sentence or two."""
    if len(summaries) == 1:
        return ""
    if all(len(summary.group.records) == 1 for summary in summaries):
        return "One seed each: how much of a difference is noise is unknown."
    verdicts = against_best(summaries)
    if not any(verdicts):
        return ""
    pairs = list(zip(summaries, verdicts, strict=True))
    near, unknown = ([s.label for s, verdict in pairs if verdict == word] for word in (NOISE, UNKNOWN))
    parts = []
    if near or WORSE in verdicts:
        listed = _listed(near) if near else "none"
        parts.append(
            f"Within noise of the best, {summaries[0].label}: {listed} (the 95 % interval of the difference, "
            "paired by seed, holds 0)."
        )
    if unknown:
        parts.append(f"Fewer than two seeds in common with the best, so noise unknown: {_listed(unknown)}.")
    return " ".join(parts)


def _listed(names: Sequence[str], most: int = 6) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
