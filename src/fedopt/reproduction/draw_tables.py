"""The paper's tables, from run directories: what each needs and what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedopt.reproduction.artifact_cells import Drawn, entry_of, method_entry, noise_notes
from fedopt.reproduction.figures import beside_paper
from fedopt.reproduction.published import (
    ADAPTIVE,
    CENTRALIZED,
    DATASET_NAMES,
    DATASET_OF,
    DATASETS,
    DECAY_TASK,
    EXP_DECAY,
    EXP_DECAY_BOLD,
    METHOD_NAMES,
    METHODS,
    OPTIMIZERS,
    SCAFFOLD,
    TASK_NAMES,
    TEST_BOLD,
    settings,
)
from fedopt.reproduction.sources import statistics
from fedopt.reproduction.study import Result, Spec, Study, over_seeds
from fedopt.reproduction.tables import Entry, Table, axis_title, chosen_text, with_bold
from fedopt.sweep.grid import edges
from fedopt.sweep.trials import TRAIN_LOSS

TUNED = (
    "Rates and tau that the paper prints for the five optimizers; SCAFFOLD, which stands beside them and "
    "does not set the best, with the winner of our own sweep."
)
RULE = "Bold: the paper's as it prints it; ours less than 0.5 points (MSE: 0.5 %) from our best."


def plan_methods(study: Study) -> Iterator[Spec]:
    """The five optimizers at the paper's rates, and the sweep that finds SCAFFOLD's."""
    for task in study.tasks:
        for method in OPTIMIZERS:
            yield from study.repeats(task, method)
        yield from study.sweep(task, SCAFFOLD)


def performance(study: Study) -> Drawn:
    entries = with_bold([method_entry(study, t, m) for t in study.tasks for m in METHODS])
    table = Table("Validation performance, mean over the last 100 rounds", entries, "task", f"{TUNED} {RULE}")
    figure = beside_paper(table, f"Validation performance{study.mark}")
    return Drawn((table,), figure, noise_notes(study, entries))


def plan_so_test(study: Study) -> Iterator[Spec]:
    for task in study.tasks:
        for method in OPTIMIZERS:
            yield from study.repeats(task, method)


def so_test(study: Study) -> Drawn:
    entries = []
    for task in study.tasks:
        for method in OPTIMIZERS:
            result = over_seeds([study.test_result(spec) for spec in study.repeats(task, method)])
            entry = entry_of(task, method, result, study.word(task))
            bold, paper = method in TEST_BOLD[task], settings(task).test_results[method]
            entries.append(replace(entry, paper=paper, paper_bold=bold))
    what = "full test set" if study.scale.full_test else "evaluation sample, not the full test set,"
    note = f"{RULE} The paper prints 66.5 beside 66.8 plain, which its own rule would make bold."
    title = f"Stack Overflow: {what} after the last round"
    table = Table(title, with_bold(entries), "task", note)
    figure = beside_paper(table, f"Stack Overflow, after training{study.mark}")
    return Drawn((table,), figure, noise_notes(study, table.entries))


def plan_sweeps(study: Study) -> Iterator[Spec]:
    for task in study.tasks:
        for method in METHODS:
            yield from study.sweep(task, method)


def plan_adaptive_sweeps(study: Study) -> Iterator[Spec]:
    for task in study.tasks:
        for method in ADAPTIVE:
            yield from study.sweep(task, method)


SELECTED = (
    "Ours: the run of the sweep with the smallest mean training loss over the last 100 rounds. Differences "
    "are in log10; the paper's grid has steps of 0.5 for rates and 1 for tau."
)


def learning_rates(study: Study) -> Drawn:
    entries = []
    for task in study.tasks:
        for method in METHODS:
            winner = study.winner(study.sweep(task, method))
            printed = settings(task).rates.get(method)
            for axis in ("client_lr", "server_lr"):
                column = f"{METHOD_NAMES[method]} {axis_title(axis)}"
                entry = _choice(study, task, winner, axis, column)
                paper = None if printed is None else float(getattr(printed, axis))
                entries.append(replace(entry, paper=paper, paper_text="none printed"))
    table = Table("log10 of the best client (η_l) and server (η) rates", tuple(entries), "task", SELECTED)
    return Drawn((table,), beside_paper(table, f"Best learning rates, log10{study.mark}"))


def tau_values(study: Study) -> Drawn:
    entries = []
    for task in study.tasks:
        for method in ADAPTIVE:
            winner = study.winner(study.sweep(task, method))
            entry = _choice(study, task, winner, "tau", f"{METHOD_NAMES[method]} {axis_title('tau')}")
            tau = settings(task).rates[method].tau
            entries.append(replace(entry, paper=None if tau is None else float(tau), digits=0))
    table = Table("log10 of the best τ", tuple(entries), "task", SELECTED)
    return Drawn((table,), beside_paper(table, f"Best τ, log10{study.mark}"))


def _choice(study: Study, task: str, winner: Result, axis: str, column: str) -> Entry:
    value = None if winner.value is None else winner.spec.at[axis]
    return Entry(
        row=TASK_NAMES[task],
        column=column,
        ours=value,
        state=winner.state,
        run=winner.run,
        word=study.word(task),
        unit="log10",
    )


CENTRAL_NAMES = {"adagrad": "Adagrad", "adam": "Adam", "yogi": "Yogi", "sgdm": "SGDM", "sgd": "SGD"}


def plan_decay(study: Study) -> Iterator[Spec]:
    for optimizer in CENTRALIZED:
        yield from study.centralized(optimizer)
    for method in OPTIMIZERS:
        yield from study.repeats(DECAY_TASK, method)
        yield from study.decayed(method)


def decay(study: Study) -> Drawn:
    """Columns pair a centralized optimizer with the federated one that has it on the server."""
    entries = [
        *(_central_entry(study, *pair) for pair in zip(CENTRALIZED, OPTIMIZERS, strict=True)),
        *(_constant_entry(study, method) for method in OPTIMIZERS),
        *(_decayed_entry(study, method) for method in OPTIMIZERS),
    ]
    note = (
        f"Constant: the runs of the performance table. ExpDecay: the client rate times 0.1 {_often(study)}, "
        "rates tuned again under it and chosen by mean training loss. Ours bold among the federated numbers."
    )
    table = Table(
        "EMNIST CR: centralized, constant rates, decay of the client rate", with_bold(entries), "", note
    )
    figure = beside_paper(table, f"EMNIST CR test accuracy{study.mark}")
    return Drawn((table,), figure, (*_central_notes(study), *noise_notes(study, entries)))


def _column(method: str) -> str:
    optimizer = list(CENTRALIZED)[OPTIMIZERS.index(method)]
    return f"{CENTRAL_NAMES[optimizer]} / {METHOD_NAMES[method]}"


def _central_entry(study: Study, optimizer: str, method: str) -> Entry:
    """Accuracy after the last epoch at the rate with the smallest training loss at the end."""
    result = study.winner(study.centralized(optimizer), TRAIN_LOSS, study.central_last)
    detail = ""
    if result.value is not None:
        at = result.spec.at
        rates = study.central_rates(optimizer)
        at_edge = len(rates) > 2 and edges(at, {"client_lr": rates})  # of two, every one is at an edge
        detail = chosen_text(at, "at the edge of the grid: a better one may lie beyond" if at_edge else "")
        result = study.test_result(result.spec)
    entry = entry_of(DECAY_TASK, method, result, study.word(DECAY_TASK), detail)
    return replace(
        entry,
        row="Centralized",
        column=_column(method),
        paper=CENTRALIZED[optimizer],
        group="",
        ranked=False,
    )


def _constant_entry(study: Study, method: str) -> Entry:
    result = over_seeds([study.result(spec) for spec in study.repeats(DECAY_TASK, method)])
    entry = entry_of(DECAY_TASK, method, result, study.word(DECAY_TASK))
    paper = settings(DECAY_TASK).results[method]
    return replace(entry, row="Constant η_l", column=_column(method), paper=paper, group="federated")


def _decayed_entry(study: Study, method: str) -> Entry:
    winner = study.winner(study.decayed(method))
    detail = chosen_text(winner.spec.at) if winner.value is not None else ""
    result = winner if winner.value is None else study.result(winner.spec)
    entry = entry_of(DECAY_TASK, method, result, study.word(DECAY_TASK), detail)
    return replace(
        entry,
        row="ExpDecay",
        column=_column(method),
        paper=EXP_DECAY[method],
        paper_bold=method in EXP_DECAY_BOLD,
        group="federated",
    )


def _central_notes(study: Study) -> tuple[str, ...]:
    last = study.central_last
    epochs = "of the last epoch" if last == 1 else f"over the last {last} epochs"
    chosen = (
        "Centralized: accuracy after the last epoch. The paper prints no grid for it; ours are values of the "
        f"client grid of EMNIST CR, {_rates_text(study)}, chosen by the mean training loss {epochs}."
    )
    if study.variant == "as_run":
        rules = (
            "Its optimizers as the authors' Keras has them: bias correction in Adam and Yogi, accumulators "
            "from 0, the rate folded into the momentum; tau = 1e-3, which the paper does not print."
        )
    else:
        rules = (
            "Its optimizers are Algorithm 2's rules as printed: no bias correction, v_{-1} = tau^2; "
            "tau = 1e-3, which the paper does not print for them."
        )
    writers = study.scale.writers
    other = (
        (f"Centralized numbers are from the test images of its first {writers} writers, not of all.",)
        if writers
        else ()
    )
    return (chosen, rules, *other)


def _rates_text(study: Study) -> str:
    return f"{len(study.central_rates('sgd'))} for each optimizer"


def _often(study: Study) -> str:
    rounds = study.scale.decay_rounds
    return "every round" if rounds == 1 else f"every {rounds} rounds"


def datasets(study: Study) -> Drawn:
    entries = []
    for name in dict.fromkeys(DATASET_OF[task] for task in study.tasks):
        source = study.sources[name]
        ours, paper = statistics(source), DATASETS[name]
        for column, mine, theirs in zip(ours._fields, ours, paper, strict=True):
            label = column.replace("_", " ")
            entries.append(
                Entry(DATASET_NAMES[name], label, mine, theirs, word=source.word, digits=0, unit="count")
            )
    note = "Counted in the imported files, or in the synthetic twin where nothing is imported."
    table = Table("Dataset statistics", tuple(entries), "dataset", note)
    return Drawn((table,), beside_paper(table, f"Dataset statistics{study.mark}", logarithmic=True))
