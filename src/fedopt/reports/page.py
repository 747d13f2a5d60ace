"""Render and write the report: one HTML file with charts, heat maps, tables and commands.

The file is self-contained, and its content security policy forbids all requests. The same runs give the same
file. A script draws the charts.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedopt.errors import RunError, UserError
from fedopt.files import disk_errors, write_atomically
from fedopt.formatting import ABSENT, format_setting, metric_unit
from fedopt.reports.charts import MAX_NAMED, run_charts, select_lines, smoothing_window, sorted_trials_chart
from fedopt.reports.clients import clients_section
from fedopt.reports.grids import sweep_view
from fedopt.reports.heatmaps import heat_maps
from fedopt.reports.seeds import differing_settings, run_seed
from fedopt.reports.sentences import describe_result
from fedopt.reports.summary import Comparison, Rule, compare_runs
from fedopt.reports.tables import Cell, Column, comparison_columns, describe_data
from fedopt.runs.records import RunRecord

MAX_TITLE_NAMES = 3  # algorithms in the title
MAX_SETTING_COLUMNS = 4  # of the results
MAX_ROWS = 100  # configurations in the results and commands; more would make the page large
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # another path does not help


def write_report(records: Sequence[RunRecord], path: Path, title: str, rule: Rule = "last") -> None:
    """Write the report on `records` to `path` atomically."""
    text = render_report(records, title, rule)
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file, such as {path / 'report.html'}")
    file = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
    if file is not None:
        raise UserError(f"cannot write {path}: {file} is a file, not a directory; choose another path")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FULL:
            raise
        raise UserError(f"{error}; choose another path") from error


def render_report(
    records: Sequence[RunRecord],
    title: str,
    rule: Rule = "last",
    version: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the report on `records` as HTML, with `notes` in its header.

    With a `version`, it is a live page, which asks its server for newer versions.
    """
    comparison, sweep = compare_runs(records, rule), sweep_view(records)
    selection = select_lines(comparison, sweep.selected_runs)
    charts = run_charts(comparison, selection, smoothing_window(records))
    maps, columns = heat_maps(sweep), comparison_columns(comparison)
    trials = [] if maps is None else [sorted_trials_chart(maps.eases, maps.grids, sweep.metric)]
    settings = setting_columns(comparison)
    return render_template(
        "fedopt.reports",
        "report.html.j2",
        title=title,
        version=version,
        notes=notes,
        synthetic=any(record.data == "synthetic" for record in records),
        facts=page_facts(comparison),
        result=describe_result(comparison, sweep),
        is_sweep=sweep.is_sweep,
        comparison=comparison,
        unit=metric_unit(comparison.metric),
        selection=selection,
        charts=charts,
        heat_maps=maps,
        sorted_trials=trials,
        clients=clients_section(records),
        columns=[*settings, *columns],
        ranked_by=columns[0],
        has_setting_columns=bool(settings),
        settings=setting_rows(comparison),
        max_listed=MAX_NAMED,
        max_shown=MAX_ROWS,
        script_data=[chart.document() for chart in [*charts, *trials]],
    )


def default_title(records: Sequence[RunRecord]) -> str:
    """Return the algorithms and the task, for a page without a title of its own."""
    names = list(dict.fromkeys(record.label for record in records))
    methods = ", ".join(names) if len(names) <= MAX_TITLE_NAMES else f"{len(names)} federated optimizers"
    return f"{methods} on {records[0].info['task']}"


def page_facts(comparison: Comparison) -> dict[str, str]:
    """Return the facts of the header by name."""
    records = comparison.records
    seeds = sorted({run_seed(record) for record in records})
    dates = sorted({str(record.info.get("started", ABSENT))[:10] for record in records})
    parameters = {count for record in records if isinstance(count := record.info.get("params"), int)}
    facts = {
        "Task": _distinct(records, "task"),
        "Data": describe_data(records),
        "Runs": str(len(records)),
        "Configurations": str(len(comparison.summaries)) if comparison.has_several_seeds else "",
        "Rounds": _range(sorted({record.rounds for record in records})),
        "Seed" if len(seeds) == 1 else "Seeds": _range(seeds),
        "Parameters": ", ".join(f"{count:,}" for count in sorted(parameters)) or ABSENT,
        "Date": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "fedopt": _distinct(records, "fedopt"),
    }
    return {name: text for name, text in facts.items() if text}


def _distinct(records: Sequence[RunRecord], key: str) -> str:
    return ", ".join(dict.fromkeys(str(record.info.get(key, ABSENT)) for record in records))


def _range(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]}"


def setting_columns(comparison: Comparison) -> list[Column]:
    """Return the settings of a grid, which become columns of the results."""
    records = [summary.record for summary in comparison.summaries]
    settings = differing_settings(records)
    settings.pop("algorithm", None)
    if any(key.endswith(".optimizer") or None in values for key, values in settings.items()):
        # Settings that only some algorithms have follow from the algorithm. Keep those that vary within one.
        same = ([r for r in records if r.label == label] for label in {record.label for record in records})
        varying = {key for group in same for key in differing_settings(group)}
        settings = {key: values for key, values in settings.items() if key in varying}
    if len(records) <= MAX_NAMED or len(settings) > MAX_SETTING_COLUMNS:
        return []
    return [Column(key, [_setting_cell(value) for value in values]) for key, values in settings.items()]


def setting_rows(comparison: Comparison) -> dict[str, list[Cell]]:
    """Return the settings in which the configurations differ, with a cell for each configuration."""
    summaries = comparison.summaries
    settings = differing_settings([summary.record for summary in summaries])
    settings.pop("algorithm", None)  # it is part of the label
    seeds = [", ".join(map(str, summary.group.seeds)) for summary in summaries]
    rounds = [summary.record.rounds for summary in summaries]
    settings |= {"seed": seeds} if len(set(seeds)) > 1 else {}
    settings |= {"rounds": rounds} if len(set(rounds)) > 1 else {}
    return {key: [_setting_cell(value) for value in values] for key, values in settings.items()}


def _setting_cell(value: object) -> Cell:
    """Return the cell of a setting. The tooltip shows floats exactly: 10^-1.5 is displayed as 0.03162."""
    if value is None:
        return Cell(ABSENT)
    return Cell(format_setting(value), str(value), tooltip=repr(value) if isinstance(value, float) else "")


def render_template(source: str | Path, template: str, **values: Any) -> str:
    """Render a Jinja2 template. Inserted values are escaped, and undefined names are errors.

    Args:
        source: a directory of templates, or a package with a directory `templates`.
        template: a file of the directory. It may include those of this package, such as `style.css`.
        values: the values of the template. It has the filters `keep_units` and `keep_numbers`.

    Returns:
        The page as HTML.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "page.j2").write_text("{{ text | keep_units }}")
        ...     render_template(Path(folder), "page.j2", text="<5 %")
        '&lt;5\xa0%'
    """
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

    own = FileSystemLoader(source) if isinstance(source, Path) else PackageLoader(source)
    environment = Environment(
        loader=ChoiceLoader([own, PackageLoader("fedopt.reports")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(keep_units=keep_units, keep_numbers=keep_numbers)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # NaN is not valid in JSON
    return environment.get_template(template).render(**values)


def keep_units(text: str) -> str:
    """Prevent line breaks between a number and its percent sign or half-width.

    Args:
        text: any text.

    Returns:
        The text with no-break spaces.

    Examples:
        >>> keep_units("50.0 ± 1.2 %")
        '50.0\\xa0±\\xa01.2\\xa0%'
    """
    return text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def keep_numbers(text: str) -> str:
    """Prevent line breaks beside numbers, except before a half-width and before a parenthesis.

    >>> keep_numbers("16.0 ± 5.0 % (2 of 3 seeds)")
    '16.0 ±\\xa05.0\\xa0% (2\\xa0of\\xa03\\xa0seeds)'
    """
    kept = re.sub(r"(?<=[\d%]) | (?=[\d%])", "\u00a0", text)
    return kept.replace("\u00a0±", " ±").replace("\u00a0(", " (")
