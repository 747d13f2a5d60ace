"""A study is one reproduction: a scale, the data, the directory, and the runs that artifacts are made of.

A run is planned as a `Spec`, which costs nothing, and becomes a `Trial` when its directory is needed.
Artifacts that plan the same spec share its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.analysis.seeds import confidence_interval
from fedopt.errors import UserError
from fedopt.reproduction.published import (
    ADAPTIVE,
    CENTRALIZED,
    DATASET_OF,
    DATASETS,
    DECAY_TASK,
    HEAT_MAP_TAU,
    settings,
)
from fedopt.reproduction.scales import CENTRAL_RATES, Scale
from fedopt.reproduction.sources import SYNTHETIC, Source, statistics, suffix
from fedopt.runs.records import LAST_ROUNDS, RunRecord, number
from fedopt.sweep.grid import points
from fedopt.sweep.trials import TRAIN_LOSS, Trial, lower_is_better, recorded, score, trial
from fedopt.tasks import TASKS
from fedopt.tasks.base import Rates

DIVERGED = "diverged"  # the one state without a value that is a result: the rates are too large
NO_ROOM = "no room on the disk"
TO_RUN = "to run"
# What the authors' Keras optimizers do, as the server's `variant=as_run` has it; a client optimizer takes no
# zero gradient first, so its step count begins at 1.
_KERAS = {"client.bias_correction": True, "client.initial_accumulator": 0.0}
_CENTRAL_AS_RUN: Mapping[str, Mapping[str, Any]] = {
    "adagrad": {"client.initial_accumulator": 0.0},
    "adam": _KERAS,
    "yogi": _KERAS,
    "sgdm": {"client.fold_rate": True},
}


class Spec(NamedTuple):
    """One run that an artifact needs."""

    task: str
    algorithm: str
    point: tuple[tuple[str, float], ...]  # log10 of rates and tau
    settings: tuple[tuple[str, Any], ...]

    @property
    def at(self) -> dict[str, float]:
        return dict(self.point)


class Result(NamedTuple):
    """What a run came to."""

    spec: Spec
    value: float | None  # raw
    state: str  # "" where there is a value, or no run at all; else diverged, failed, unfinished, ...
    run: Path | None
    half: float | None = None  # of the 95 % interval over several seeds
    by_seed: tuple[tuple[int, float], ...] = ()  # seed and value, where there are several
    remark: str = ""  # such as seeds that are missing


@dataclass(frozen=True)
class Study:
    """What is reproduced, from which data, where."""

    scale: Scale
    out: Path
    sources: Mapping[str, Source]  # by dataset
    tasks: tuple[str, ...]  # those asked for, in the paper's order
    variant: str = "as_run"
    seeds: tuple[int, ...] = (0,)  # of the runs at the paper's rates; sweeps have the first
    _records: dict[Spec, RunRecord | None] = field(default_factory=dict, compare=False)
    _trials: dict[Spec, Trial] = field(default_factory=dict, compare=False)
    damaged: dict[Spec, str] = field(default_factory=dict, compare=False)  # what is wrong with a run
    no_room: set[Spec] = field(default_factory=set, compare=False)  # runs that the disk cannot hold

    def source(self, task: str) -> Source:
        return self.sources[DATASET_OF[task]]

    def word(self, task: str) -> str:
        return self.source(task).word

    def of(self, *tasks: str) -> Study:
        """The part of this study on some tasks; what was read is shared."""
        return replace(self, tasks=tasks)

    @property
    def mark(self) -> str:
        """What the title of a figure must say about the data of these tasks."""
        return suffix([self.word(task) for task in self.tasks])

    # -- plans

    def published(self, task: str, algorithm: str, seed: int | None = None) -> Spec:
        """The run with the paper's rates; on Stack Overflow it ends with the full test set."""
        rates = settings(task).rates[algorithm]
        point = {"client_lr": float(rates.client_lr), "server_lr": float(rates.server_lr)}
        if rates.tau is not None:
            point["tau"] = float(rates.tau)
        full = self.scale.full_test and TASKS[task].full_test_at_end
        return self._spec(task, algorithm, point, {"eval.final": "full"} if full else {}, seed)

    def repeats(self, task: str, algorithm: str) -> tuple[Spec, ...]:
        """The runs with the paper's rates, one for each seed."""
        return tuple(self.published(task, algorithm, seed) for seed in self.seeds)

    def sweep(self, task: str, algorithm: str) -> tuple[Spec, ...]:
        """The tuning grid of one method: client x server rates, with tau where it has one.

        The paper's point is the run at the paper's rates, so that it is not run twice.
        """
        specs = self._grid(task, algorithm, self.scale.taus)
        if algorithm not in settings(task).rates:
            return specs
        published = self.published(task, algorithm)
        return tuple(published if spec.point == published.point else spec for spec in specs)

    def heat_map(self, task: str, algorithm: str) -> tuple[Spec, ...]:
        """The part of the tuning grid that the heat maps show."""
        specs = self.sweep(task, algorithm)
        return tuple(spec for spec in specs if spec.at.get("tau", HEAT_MAP_TAU) == HEAT_MAP_TAU)

    def decayed(self, algorithm: str) -> tuple[Spec, ...]:
        """The grid of the decay table, tuned again under ExpDecay on the client's rate."""
        decay = {"client.schedule": "staircase", "client.decay_rounds": self.scale.decay_rounds}
        return self._grid(DECAY_TASK, algorithm, self.scale.decay_taus, decay)

    def central_rates(self, optimizer: str) -> tuple[float, ...]:
        """The rates that centralized training tries: the task's client grid, or a part of it."""
        return self.scale.rates(settings(DECAY_TASK).client_grid, CENTRAL_RATES[optimizer])

    @property
    def central_last(self) -> int:
        """Epochs over whose training loss centralized rates are chosen: the last tenth, at least one."""
        return max(1, self.scale.epochs // 10)

    def centralized(self, optimizer: str) -> tuple[Spec, ...]:
        """The grid of one optimizer on the union of all data."""
        scale = self.scale
        chosen: dict[str, Any] = {"client.optimizer": optimizer, "rounds": scale.epochs, "eval.every": 1}
        chosen |= _CENTRAL_AS_RUN.get(optimizer, {}) if self.variant == "as_run" else {}
        if scale.writers:
            source = self.source(DECAY_TASK)
            most = DATASETS if source.directory == SYNTHETIC else {source.dataset: statistics(source)}
            chosen["data.clients"] = min(scale.writers, most[source.dataset].train_clients)
        return tuple(
            self._spec(DECAY_TASK, "centralized", {"client_lr": rate}, chosen)
            for rate in self.central_rates(optimizer)
        )

    def _grid(
        self,
        task: str,
        algorithm: str,
        adaptive_taus: Callable[[str, float], tuple[float, ...]],
        extra: Mapping[str, Any] | None = None,
    ) -> tuple[Spec, ...]:
        paper = settings(task)
        # SCAFFOLD's rates are not printed; FedAvg's stand in the middle of a reduced grid
        best: Rates = paper.rates.get(algorithm, paper.rates["fedavg"])
        grid = {
            "client_lr": self.scale.rates(paper.client_grid, float(best.client_lr)),
            "server_lr": self.scale.rates(paper.server_grid, float(best.server_lr)),
        }
        if algorithm in ADAPTIVE:
            assert best.tau is not None
            grid["tau"] = adaptive_taus(task, float(best.tau))
        return tuple(
            self._spec(task, algorithm, {axis: float(v) for axis, v in point.items()}, extra or {})
            for point in points(grid)
        )

    def _spec(
        self,
        task: str,
        algorithm: str,
        point: Mapping[str, float],
        extra: Mapping[str, Any],
        seed: int | None = None,
    ) -> Spec:
        scale = self.scale
        chosen: dict[str, Any] = {
            "rounds": scale.rounds_of(task),
            "seed": self.seeds[0] if seed is None else seed,
            "eval.sample": scale.sample_of(task),
            "eval.every": scale.eval_every,
            "eval.last_every": scale.eval_last_every,
            "eval.final": "sample",
        }
        if algorithm != "centralized":
            chosen |= {"variant": self.variant, "clients_per_round": scale.cohort_of(task)}
        chosen |= {"client.steps": scale.steps} if scale.steps else {}
        chosen |= extra
        if not scale.keep_checkpoints:
            chosen |= {"checkpoint.every": chosen["rounds"], "checkpoint.keep": 1}
        return Spec(task, algorithm, tuple(point.items()), tuple(chosen.items()))

    # -- runs

    def trial(self, spec: Spec) -> Trial:
        """Where the run lies and how it is made."""
        if spec not in self._trials:
            root, data = self.out / "runs" / spec.task, self.source(spec.task).directory
            self._trials[spec] = trial(root, spec.task, spec.algorithm, spec.at, dict(spec.settings), data)
        return self._trials[spec]

    def record(self, spec: Spec) -> RunRecord | None:
        """What is on disk of a run, read once; a damaged one is noted and left out."""
        if spec not in self._records:
            self._records[spec] = None
            try:
                self._records[spec] = recorded(self.trial(spec))
            except UserError as error:
                self.damaged[spec] = str(error)
        return self._records[spec]

    def records(self, specs: Iterable[Spec]) -> list[RunRecord]:
        return [record for spec in specs if (record := self.record(spec)) is not None]

    def forget(self) -> None:
        """Read again what is asked for next: runs have gone on."""
        self._records.clear()
        self.damaged.clear()

    def rounds(self, spec: Spec) -> int:
        return int(dict(spec.settings)["rounds"])

    def result(self, spec: Spec, select: str = "", last: int = LAST_ROUNDS) -> Result:
        """The mean over the `last` rounds of the task's metric, or of what `select` names."""
        record = self.record(spec)
        if record is None:
            return self._nothing(spec)
        value = score(record, select or TASKS[spec.task].metric, self.rounds(spec), last)
        state = NO_ROOM if spec in self.no_room else _state(record)
        return Result(spec, value, "" if value is not None else state, record.path)

    def test_result(self, spec: Spec) -> Result:
        """On the full test set after the last round; at a scale without it, the last evaluation."""
        record, metric = self.record(spec), TASKS[spec.task].metric
        if record is None:
            return self._nothing(spec)
        value: float | None = None
        if record.status == "done":
            if dict(spec.settings)["eval.final"] == "full":
                value = number((record.info.get("full_test") or {}).get(metric))
            else:
                value = next(iter(record.curve("test", metric)[1][-1:]), None)
        return Result(spec, value, "" if value is not None else _state(record), record.path)

    def _nothing(self, spec: Spec) -> Result:
        if spec in self.no_room:
            return Result(spec, None, NO_ROOM, None)
        damaged = spec in self.damaged
        return Result(spec, None, "damaged" if damaged else "", self.trial(spec).path if damaged else None)

    def winner(self, specs: Sequence[Spec], select: str = TRAIN_LOSS, last: int = LAST_ROUNDS) -> Result:
        """The run that the rule selects, with the value it was selected by, once every run has a result.

        To diverge is a result. A run that failed, is damaged or is missing could have been the best, so
        without it there is no winner, and the state says why.
        """
        results = [self.result(spec, select, last) for spec in specs]
        why = open_runs(results)
        if why is not None:
            return Result(specs[0], None, why, None)
        known = [r for r in results if r.value is not None]
        if not known:
            return Result(specs[0], None, DIVERGED, results[0].run)
        sign = 1 if lower_is_better(TASKS[specs[0].task], select) else -1
        return min(known, key=lambda r: sign * (r.value or 0.0))


def open_runs(results: Sequence[Result]) -> str | None:
    """How many runs of a grid have no result, and why; "" where none has begun, None where none is open."""
    states = [r.state for r in results if r.value is None and r.state != DIVERGED]
    if not states:
        return None
    if len(states) == len(results) and set(states) <= {"", NO_ROOM}:
        return NO_ROOM if NO_ROOM in states else ""
    counts = Counter(TO_RUN if state in ("", "unfinished") else state for state in states)
    return ", ".join(f"{n} of {len(results)} {state}" for state, n in counts.items())


def over_seeds(results: Sequence[Result]) -> Result:
    """One result of a run for each of several seeds: the mean with its interval, over those that have one."""
    seeds = [int(dict(result.spec.settings)["seed"]) for result in results]
    known = [(seed, r.value) for seed, r in zip(seeds, results, strict=True) if r.value is not None]
    if len(results) == 1 or not known:
        return results[0]
    mean, half, n = confidence_interval([value for _, value in known])
    missing = Counter(result.state or TO_RUN for result in results if result.value is None)
    words = [f"{n} of {len(results)} seeds"] if missing else []
    words += [f"{count} {state}" for state, count in missing.items()]
    first = next(result for result in results if result.value is not None)
    return Result(first.spec, mean, "", first.run, half, tuple(known), ", ".join(words))


def best_of(results: Sequence[Result]) -> Result | None:
    """The best of some results of one task by its metric."""
    known = [result for result in results if result.value is not None]
    if not known:
        return None
    sign = 1 if TASKS[known[0].spec.task].better == "lower" else -1
    return min(known, key=lambda r: sign * (r.value or 0.0))


def _state(record: RunRecord) -> str:
    return record.status if record.status in (DIVERGED, "failed") else "unfinished"


def grid_values(specs: Sequence[Spec], axis: str) -> list[float]:
    """The values of an axis among some runs, ascending."""
    return sorted({spec.at[axis] for spec in specs})


assert set(CENTRAL_RATES) == set(CENTRALIZED)
