"""Compact results of runs: extracted from run directories, stored as JSON, read back as records.

The records have the type that `fedopt.reports` works on. Evaluations are complete. Training lines of long
runs are averaged over intervals that end at evaluations and at the rungs of successive halving.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedopt.files import write_atomically
from fedopt.runs.discover import find_runs, run_directories
from fedopt.runs.records import RunRecord, count_rejected, flatten, number
from fedopt.tuning.searches import REDUCTION

RESULTS = Path(__file__).parent / "results"
RESULTS_BY_CPU = Path(__file__).parent / "results_by_cpu"  # of the same entries on another CPU type
DIGITS = 7  # significant digits of stored numbers
SHORT = 100  # rounds of a run whose training lines are all stored
_INFO_KEYS = ("task", "algorithm", "seed", "rounds", "status", "data", "metric", "better", "started")
_RESULT_KEYS = ("train_loss", "last", "value", "params", "x_sha256", "seconds", "rejected", "rounds_done")
_SEGMENT_KEYS = ("fedopt", "torch", "numpy", "python", "cpu", "processor")


class EntryResult(NamedTuple):
    """The stored result of one entry of the plan."""

    name: str
    command: str
    commits: list[str]  # of the versions that computed the runs
    complete: bool  # whether the command ended successfully
    cpu_seconds: float | None  # of all attempts; None if it was not measured
    records: list[RunRecord]

    @property
    def done(self) -> list[RunRecord]:
        return [record for record in self.records if record.status == "done"]

    @property
    def cpu_type(self) -> str:
        """The types of the CPUs that computed the runs."""
        machines = [
            machine
            for record in self.records
            for machine in (*record.info.get("earlier_machines", ()), record.info["machine"])
        ]
        return " and ".join(sorted(set(map(cpu_type, machines))))

    @property
    def dates(self) -> list[str]:
        """The days on which runs were started, in order."""
        return sorted({str(record.info.get("started", ""))[:10] for record in self.records})


Results = Mapping[str, EntryResult]


def cpu_type(machine: Mapping[str, Any]) -> str:
    """Return the instructions and the model of a CPU. Early runs did not record the model.

    >>> cpu_type({"cpu": "AVX512", "processor": "GenuineIntel family 6 model 207"}), cpu_type({"cpu": "AVX2"})
    ('AVX512-GenuineIntel-6-207', 'AVX2')
    """
    words = str(machine.get("processor") or "").split()
    return "-".join([machine["cpu"], *(word for word in words if word not in ("family", "model"))])


def load_results(directory: Path = RESULTS) -> dict[str, EntryResult]:
    """Read all stored results by the name of their entry."""
    found = [_from_document(json.loads(file.read_text())) for file in sorted(directory.rglob("*.json"))]
    return {result.name: result for result in found}


def load_results_by_cpu(directory: Path = RESULTS_BY_CPU) -> dict[str, dict[str, EntryResult]]:
    """Read the results of entries that were repeated on another CPU type, by that type."""
    return {folder.name: load_results(folder) for folder in sorted(directory.glob("*")) if folder.is_dir()}


def store_result(result: EntryResult, directory: Path = RESULTS) -> Path:
    """Write the result of an entry to its JSON file."""
    file = directory / f"{result.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _to_text(result))
    return file


def read_records(directory: Path) -> list[RunRecord]:
    """Read and compact all runs at or below a directory that have finished rounds."""
    found = find_runs([directory]).records if any(run_directories(directory)) else []
    return [compact_record(record, directory) for record in found if record.train]


def compact_record(record: RunRecord, directory: Path) -> RunRecord:
    """Return a record with rounded numbers, a relative path and, of a long run, few training lines."""
    info = {key: record.info[key] for key in (*_INFO_KEYS, *_RESULT_KEYS) if key in record.info}
    segments = [{key: s[key] for key in _SEGMENT_KEYS if key in s} for s in record.info["segments"]]
    info["machine"] = segments[-1]
    if any(segment != segments[-1] for segment in segments):
        info["earlier_machines"] = segments[:-1]
    test = [
        _rounded({k: v for k, v in line.items() if k not in ("seconds", "split")}) for line in record.test
    ]
    ends = {line["round"] for line in test} | {record.rounds, *halving_rungs(record.rounds)}
    if record.rounds <= SHORT:
        ends = set(range(1, record.rounds + 1))
    train = [_rounded(line) for line in _average_intervals(record.train, sorted(ends))]
    return RunRecord(record.path.relative_to(directory), _rounded(info), flatten(record.config), train, test)


def halving_rungs(rounds: int) -> list[int]:
    """Return rounds at which successive halving may stop trials, from an 81st of all rounds on.

    >>> halving_rungs(300)
    [3, 11, 33, 100, 300]
    """
    return [rounds // REDUCTION**power for power in (4, 3, 2, 1, 0) if rounds // REDUCTION**power >= 2]


def _average_intervals(lines: Sequence[Mapping[str, Any]], ends: Iterable[int]) -> list[dict[str, Any]]:
    """Average the loss and add up the clients over the rounds up to each end."""
    averaged, first = [], 1
    for end in ends:
        part = [dict(line) for line in lines if first <= line["round"] <= end]
        losses = [loss for line in part if (loss := number(line.get("loss"))) is not None]
        if part:
            loss = sum(losses) / len(losses) if len(losses) == len(part) else None
            clients = sum(line.get("clients", 0) for line in part)
            counts = {"rounds": len(part), "clients": clients, "rejected": count_rejected(part)}
            averaged.append({"round": end, "loss": loss, **counts})
        first = end + 1
    return averaged


def mean_train_loss(record: RunRecord, end: int, last: int = 100) -> float | None:
    """Return the mean training loss over the last rounds up to `end`, from the intervals of a record.

    Intervals that begin before these rounds are left out. None if `end` is not the end of an interval.
    """
    total, rounds = 0.0, 0
    for line in record.train:
        if line["round"] <= end and line["round"] - line["rounds"] >= end - last:
            if line["loss"] is None:
                return None
            total, rounds = total + line["loss"] * line["rounds"], rounds + line["rounds"]
    is_end = any(line["round"] == end for line in record.train)
    return total / rounds if is_end and rounds else None


def value_at(record: RunRecord, round: int) -> float | None:
    """Return the task's metric at an evaluated round."""
    rounds, values = record.curve("test", record.metric)
    return dict(zip(rounds, values, strict=True)).get(round)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


def _to_text(result: EntryResult) -> str:
    """Return JSON with one run per line. Settings that all runs share are written once."""
    rows = [(record.info, record.config) for record in result.records]
    shared = [_shared([row[part] for row in rows]) for part in (0, 1)]
    head = {
        "name": result.name,
        "command": result.command,
        "commits": result.commits,
        "complete": result.complete,
        "cpu_seconds": result.cpu_seconds,
        "info": shared[0],
        "config": shared[1],
    }
    lines = []
    for record in result.records:
        own = [_without(d, common) for d, common in zip((record.info, record.config), shared, strict=True)]
        series = {"test": _columns(record.test), "train": _columns(record.train)}
        lines.append(json.dumps({"path": str(record.path), "info": own[0], "config": own[1], **series}))
    text = json.dumps(head, indent=1)
    return text.removesuffix("\n}") + ',\n "runs": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def _from_document(document: dict[str, Any]) -> EntryResult:
    records = [
        RunRecord(
            Path(run["path"]),
            {**document["info"], **run["info"]},
            {**document["config"], **run["config"]},
            _lines(run["train"]),
            _lines(run["test"]),
        )
        for run in document["runs"]
    ]
    fields = {name: document[name] for name in ("name", "command", "commits", "complete", "cpu_seconds")}
    return EntryResult(**fields, records=records)


def _shared(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = documents[0] if documents else {}
    return {k: v for k, v in first.items() if all(k in d and d[k] == v for d in documents)}


def _without(document: dict[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in common}


def _columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for line in lines for key in line)
    return {key: [line.get(key) for line in lines] for key in keys}


def _lines(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
