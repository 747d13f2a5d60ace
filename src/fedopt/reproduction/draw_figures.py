"""The paper's figures, from run directories: what each needs and what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedopt.analysis.seeds import Interval, confidence_interval
from fedopt.data.store import open_store
from fedopt.data.store.describe import labels_per_client
from fedopt.data.synthetic import cifar as synthetic_cifar
from fedopt.reproduction.artifact_cells import (
    Drawn,
    method_entry,
    method_specs,
    noise_notes,
    paper_unit,
    unit_text,
)
from fedopt.reproduction.figures import (
    CLIENT_RATE,
    INK,
    SERVER_RATE,
    STYLES,
    TAU,
    grid,
    method_legend,
    quiet_grid,
    say,
    steps,
    styled,
)
from fedopt.reproduction.published import (
    ADAPTIVE,
    HEAT_MAP_TAU,
    METHOD_NAMES,
    METHODS,
    OPTIMIZERS,
    TASK_NAMES,
)
from fedopt.reproduction.sources import SYNTHETIC
from fedopt.reproduction.study import DIVERGED, Result, Spec, Study, best_of, grid_values, open_runs
from fedopt.reproduction.tables import PICTURE, Entry, Table, axis_label, axis_title, chosen_text, with_bold
from fedopt.runs.records import RunRecord, number
from fedopt.sweep.trials import TRAIN_LOSS
from fedopt.tasks import TASKS

CHANGED = 0.1  # of the initial validation loss: less is no training


# -- validation curves


def curves(study: Study) -> Drawn:
    """Validation metric against rounds, all methods of one task."""
    (task,) = study.tasks
    unit, word = paper_unit(task), study.word(task)
    points: list[Entry] = []
    with styled():
        figure, (axis,) = grid(1, width=6.4, height=3.6)
        quiet_grid(axis)
        drawn = []
        for method in METHODS:
            records = study.records(method_specs(study, task, method)[0])
            curve = mean_curve(records, TASKS[task].metric, unit.factor)
            if curve:
                drawn.append(method)
                rounds, shown = list(curve), [value.mean for value in curve.values()]
                axis.plot(rounds, shown, markevery=max(1, len(rounds) // 12), **STYLES[method])
                halves = np.array([value.half_width or 0.0 for value in curve.values()])
                if halves.any():
                    low, high = np.array(shown) - halves, np.array(shown) + halves
                    axis.fill_between(rounds, low, high, color=STYLES[method]["color"], alpha=0.15, lw=0)
            points += [
                Entry(
                    str(at),
                    METHOD_NAMES[method],
                    y.mean,
                    half=y.half_width,
                    run=records[0].path,
                    word=word,
                    unit=unit_text(task),
                )
                for at, y in curve.items()
            ]
        if unit.name.startswith("MSE") and points:
            axis.set_yscale("log")
        if not drawn:
            say(axis, "no runs yet")
        axis.set_xlabel("round")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel(f"validation {unit.name}{unit.suffix}")
        method_legend(figure, drawn)
        figure.suptitle(f"{TASK_NAMES[task]}{study.mark}", x=0.01, ha="left", fontweight="bold")
    entries = with_bold([method_entry(study, task, method) for method in METHODS])
    title = f"{TASK_NAMES[task]}: mean over the last 100 rounds"
    tables = (Table(title, entries, "task"), Table("curve", tuple(points), on_page=False))
    bands = ("Bands are 95 % intervals over the seeds.",) if len(study.seeds) > 1 else ()
    return Drawn(tables, figure, (*bands, *noise_notes(study, entries)))


def mean_curve(records: Sequence[RunRecord], metric: str, factor: float) -> dict[int, Interval]:
    """By round: the mean over the runs that were evaluated there, with its interval."""
    found: dict[int, list[float]] = {}
    for record in records:
        for at, value in zip(*record.curve("test", metric), strict=True):
            found.setdefault(at, []).append(value * factor)
    return {at: confidence_interval(values) for at, values in sorted(found.items())}


# -- best server rate against client rate


def server_rates(study: Study) -> Drawn:
    """For each client rate the best server rate by validation; client rates that train nothing left out."""
    tables = []
    with styled():
        figure, axes = grid(len(study.tasks))
        for axis, task in zip(axes, study.tasks, strict=True):
            entries: list[Entry] = []
            quiet_grid(axis)
            for at, method in enumerate(OPTIMIZERS):
                found = best_server_rates(study, task, method)
                kept = [(client, best) for client, best in found.items() if isinstance(best, Result)]
                if kept:
                    shift = 0.05 * (at - 2)  # lines that meet stay visible
                    xs, ys = zip(*((c, b.spec.at["server_lr"] + shift) for c, b in kept), strict=True)
                    axis.plot(xs, ys, **STYLES[method])
                entries += [_rate_entry(study, task, method, client, best) for client, best in found.items()]
            if not any(entry.ours is not None for entry in entries):
                say(axis, "no client rate changed the\ninitial loss by more than 10 %\n(or not run yet)")
            axis.set_title(TASK_NAMES[task] + study.of(task).mark)
            axis.set_xlabel(CLIENT_RATE)
            axis.set_ylabel("best " + SERVER_RATE)
            steps(axis, 0.5, 0.5)
            title = f"{TASK_NAMES[task]}: best {axis_title('server_lr')}"
            tables.append(Table(title, tuple(entries), "optimizer", compare=False))
        method_legend(figure, OPTIMIZERS)
        figure.suptitle(
            f"Best server rate for each client rate{study.mark}", x=0.01, ha="left", fontweight="bold"
        )
    rule = (
        f"By validation; adaptive methods with τ = 1e{axis_label(HEAT_MAP_TAU)}. “omitted”: with no server "
        "rate did the validation loss after the last round differ by more than 10 % from the initial one, "
        "the caption's rule; the text's, within 10 % of the worst loss, is another. In the figure, lines are "
        "shifted a little so that those which meet stay visible."
    )
    return Drawn(tuple(tables), figure, (PICTURE, rule))


def best_server_rates(study: Study, task: str, method: str) -> dict[float, Result | str]:
    """By client rate: the best run, or "omitted", or why it is not known."""
    specs = study.heat_map(task, method)
    found: dict[float, Result | str] = {}
    for client in grid_values(specs, "client_lr"):
        column = [spec for spec in specs if spec.at["client_lr"] == client]
        results = [study.result(spec) for spec in column]
        best = best_of(results)
        why = open_runs(results)
        if why is not None:
            found[client] = why
        elif best is None:
            found[client] = DIVERGED
        else:
            found[client] = best if any(_has_trained(study, spec) for spec in column) else "omitted"
    return found


def _has_trained(study: Study, spec: Spec) -> bool:
    """Whether the validation loss of the last evaluation is more than 10 % away from the first one."""
    record, final = study.record(spec), study.result(spec, "loss", last=1).value
    if record is None or final is None or not record.test or record.test[0]["round"] != 0:
        return False
    initial = number(record.test[0].get("loss"))
    return initial is not None and abs(final - initial) > CHANGED * abs(initial)


def _rate_entry(study: Study, task: str, method: str, client: float, best: Result | str) -> Entry:
    row, column = METHOD_NAMES[method], axis_title("client_lr", client)
    entry = Entry(row, column, word=study.word(task), unit=axis_title("server_lr"))
    if isinstance(best, str):
        return replace(entry, state=best)
    return replace(entry, ours=best.spec.at["server_lr"], run=best.run)


# -- performance against tau

READINGS = {
    "best by validation": "",
    "chosen by training loss": TRAIN_LOSS,
}


def tau(study: Study) -> Drawn:
    """Validation metric against tau, with rates chosen for each tau by either reading of the paper."""
    tables = []
    with styled():
        figure, axes = grid(len(study.tasks))
        for axis, task in zip(axes, study.tasks, strict=True):
            unit = paper_unit(task)
            quiet_grid(axis)
            entries: list[Entry] = []
            for method in ADAPTIVE:
                for reading in READINGS:
                    points = tau_reading(study, task, method, reading)
                    kept = [(t, r.value * unit.factor) for t, r in points.items() if r.value is not None]
                    if kept:
                        second = reading != next(iter(READINGS))
                        look = {**STYLES[method], "linestyle": "--" if second else "-"}
                        axis.plot(*zip(*kept, strict=True), **look, mfc="none" if second else None)
                    entries += [_tau_entry(study, task, method, reading, t, r) for t, r in points.items()]
            if not any(entry.ours is not None for entry in entries):
                say(axis, "not run yet")
            axis.set_title(TASK_NAMES[task] + study.of(task).mark)
            axis.set_xlabel(TAU)
            steps(axis, 1)
            axis.set_ylabel(unit.name + unit.suffix)
            tables.append(
                Table(
                    f"{TASK_NAMES[task]}, {unit.name}{unit.suffix}",
                    tuple(entries),
                    "optimizer",
                    compare=False,
                )
            )
        looks: tuple[dict[str, Any], ...] = ({"linestyle": "-"}, {"linestyle": "--", "mfc": "none"})
        extra = [
            Line2D([], [], color=INK, marker="o", label=reading, **look)
            for reading, look in zip(READINGS, looks, strict=True)
        ]
        method_legend(figure, ADAPTIVE, extra)
        figure.suptitle(f"Validation performance against τ{study.mark}", x=0.01, ha="left", fontweight="bold")
    both = (
        "The text takes the best rates a posteriori, by validation; the caption says that they were chosen "
        "by training loss. Both are shown."
    )
    return Drawn(tuple(tables), figure, (PICTURE, both))


def tau_reading(study: Study, task: str, method: str, reading: str) -> dict[float, Result]:
    """By tau: the validation result of the rates that a reading chooses, once every run is over."""
    specs, found = study.sweep(task, method), {}
    for value in grid_values(specs, "tau"):
        chosen = study.winner(
            [s for s in specs if s.at["tau"] == value], READINGS[reading] or TASKS[task].metric
        )
        found[value] = chosen if chosen.value is None else study.result(chosen.spec)
    return found


def _tau_entry(study: Study, task: str, method: str, reading: str, tau: float, result: Result) -> Entry:
    unit = paper_unit(task)
    rates = {axis: value for axis, value in result.spec.at.items() if axis != "tau"}
    return Entry(
        row=f"{METHOD_NAMES[method]}, {reading}",
        column=f"τ = 1e{axis_label(tau)}",
        ours=None if result.value is None else result.value * unit.factor,
        state=result.state,
        run=result.run,
        word=study.word(task),
        digits=unit.digits,
        unit=unit.name + unit.suffix,
        detail=chosen_text(rates) if result.value is not None else "",
    )


# -- unique labels per client


def labels(study: Study) -> Drawn:
    """How many different labels each training client of CIFAR-100 has."""
    counts = label_counts(study.source("cifar100").directory)
    numbers, clients = np.unique(counts, return_counts=True)
    word = study.word("cifar100")
    with styled():
        figure, (axis,) = grid(1, width=6.4, height=3.2)
        quiet_grid(axis)
        axis.bar(numbers, clients, width=0.85, color=STYLES["fedadam"]["color"])
        axis.set_xlabel("different labels of a client")
        axis.set_ylabel("clients")
        figure.suptitle(
            f"CIFAR-100{study.mark}: unique labels per client", x=0.01, ha="left", fontweight="bold"
        )
    share = 100 * float(np.mean((counts >= 20) & (counts <= 30)))
    facts = (
        ("clients with 20 to 30 labels, %", share, "most", 0),
        ("clients with more than 40 labels", float((counts > 40).sum()), "some", 0),
        ("median", float(median(counts.tolist())), "", 0),
        ("fewest", float(counts.min()), "very few", 0),
        ("most", float(counts.max()), "over 40", 0),
    )
    summary = [
        Entry("CIFAR-100", column, ours, paper_text=paper, word=word, digits=digits)
        for column, ours, paper, digits in facts
    ]
    histogram = [
        Entry(str(n), "clients", float(c), word=word, digits=0, unit="clients")
        for n, c in zip(numbers.tolist(), clients.tolist(), strict=True)
    ]
    tables = (
        Table("Unique labels per training client", tuple(summary), "dataset"),
        Table("histogram", tuple(histogram), "labels", on_page=False),
    )
    note = "The paper's figure has no printed numbers; what its text says about it stands in its row."
    return Drawn(tables, figure, (note,))


def label_counts(directory: str) -> np.ndarray:
    """The number of different labels of each training client."""
    if directory == SYNTHETIC:
        labels = (
            synthetic_cifar.examples("train", client)["label"]
            for client in range(len(synthetic_cifar.ids("train")))
        )
        return np.array([len(np.unique(own)) for own in labels])
    counts = labels_per_client(open_store(Path(directory)).split("train"))
    assert counts is not None  # a store of CIFAR-100 has labels
    return counts
