"""Read a run directory.

The run may still be running, so an incomplete last line of `metrics.jsonl` is ignored. All other damage is
reported with the file and the line.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedopt.documents import first_problem, is_intact, parse_json, parse_toml, read_regular_file
from fedopt.errors import RunDirectoryError
from fedopt.files import is_locked

KILLED = "killed"  # the status of a run whose process ended without recording its status
LAST_ROUNDS = 100  # final numbers are means over these rounds, as in the paper's tables
NOT_METRICS = ("round", "split", "loss", "seconds")  # keys of a test line that are not the task's metric
CHANGEABLE = ("rounds", "stop.", "eval.every", "eval.last_every")  # beginnings of keys of config.toml
LOWER_IS_BETTER = ("mse", "loss", "perplexity")  # for run.json files without the key "better"


class LastEvaluation(NamedTuple):
    round: int
    value: float | None  # None without an evaluation, or if the metric is not finite


class RunRecord(NamedTuple):
    """The contents of one run directory."""

    path: Path
    info: dict[str, Any]  # run.json
    config: dict[str, Any]  # config.toml, as it was when the run last started
    train: list[dict[str, Any]]  # lines of metrics.jsonl, by round
    test: list[dict[str, Any]]
    clients: dict[str, Any] | None = None  # data.json; older runs have none

    @property
    def label(self) -> str:
        """The name of the algorithm, without the module of a user-defined one."""
        return str(self.info["algorithm"]).rpartition(":")[2]

    @property
    def data(self) -> str:
        return str(self.info.get("data", "unknown"))

    @property
    def status(self) -> str:
        return str(self.info.get("status", "unknown"))

    @property
    def stopped_early(self) -> bool:
        """Whether early stopping ended the run before its last round."""
        return self.status == "done" and "rounds_done" in self.info

    @property
    def metric(self) -> str:
        """The task's metric; from the first evaluation if run.json does not name it."""
        names = [key for line in self.test[:1] for key in line if key not in NOT_METRICS]
        return str(self.info.get("metric") or (names[0] if names else "loss"))

    @property
    def higher_is_better(self) -> bool:
        if "better" in self.info:
            return bool(self.info["better"] == "higher")
        return self.metric not in LOWER_IS_BETTER

    @property
    def rounds(self) -> int:
        """The last recorded round."""
        return max((line["round"] for line in self.train + self.test), default=0)

    @property
    def last_evaluation(self) -> LastEvaluation:
        """The task's metric at the last evaluation."""
        return last_evaluation(self.test, self.metric)

    @property
    def rejected(self) -> int:
        """The number of clients that were left out of all rounds: their loss or update was not finite."""
        return count_rejected(self.train)

    def curve(self, split: Literal["train", "test"], key: str) -> tuple[list[int], list[float]]:
        """The rounds with a finite value of `key`, and these values."""
        lines = self.train if split == "train" else self.test
        points = [(line["round"], number(line.get(key))) for line in lines]
        kept = [(at, value) for at, value in points if value is not None]
        return [at for at, _ in kept], [value for _, value in kept]


def number(value: object) -> float | None:
    """`value` as a float, or None if it is not a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    return None


def count_rejected(lines: Sequence[dict[str, Any]]) -> int:
    """Add up the rejected clients of train lines. Older versions did not record them."""
    return sum(int(number(line.get("rejected")) or 0) for line in lines)


def last_evaluation(lines: Sequence[dict[str, Any]], metric: str) -> LastEvaluation:
    """Return the metric of the last test line. The model before training does not count.

    >>> last_evaluation([{"round": 0, "accuracy": 0.1}, {"round": 20, "accuracy": 0.5}], "accuracy")
    LastEvaluation(round=20, value=0.5)
    """
    last = next((line for line in reversed(lines) if line["round"] > 0), {"round": 0})
    return LastEvaluation(last["round"], number(last.get(metric)))


def mean_over_last_rounds(
    lines: Sequence[dict[str, Any]], key: str, rounds: int, last: int = LAST_ROUNDS
) -> float | None:
    """The mean of the finite values of `key` in the last `last` of `rounds` rounds, or None.

    Round 0, the model before training, never counts.

    >>> mean_over_last_rounds([{"round": 1, "loss": 4.0}, {"round": 2, "loss": None}], "loss", 2)
    4.0
    """
    first = max(1, rounds - last + 1)
    values = [number(line.get(key)) for line in lines if first <= line["round"] <= rounds]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def averaged_rounds(rounds: Collection[int]) -> str:
    """Name the rounds over which final numbers are means, for runs with these numbers of rounds.

    >>> averaged_rounds([1500]), averaged_rounds([20, 20]), averaged_rounds([10, 20])
    ('last 100 rounds', 'all 20 rounds', 'all rounds')
    >>> averaged_rounds([20, 1500])
    'last rounds (at most 100)'
    """
    shortest, longest = min(rounds, default=0), max(rounds, default=0)
    if shortest >= LAST_ROUNDS:
        return f"last {LAST_ROUNDS} rounds"
    if longest > LAST_ROUNDS:
        return f"last rounds (at most {LAST_ROUNDS})"
    if shortest == longest == 1:
        return "1 round"
    return f"all {longest} rounds" if shortest == longest else "all rounds"


def read_run(path: Path) -> RunRecord:
    """Read a run directory. Raises `RunDirectoryError` if a file is missing or damaged."""
    if not path.is_dir():
        raise RunDirectoryError(
            f"no run directory at {path}; name one that `fedopt run` has written", path=path
        )
    info = _read_info(path / "run.json")
    if info.get("status") == "running" and not (is_locked(path) or "writer" in info):
        info["status"] = KILLED
    try:
        config = parse_toml(_read(path / "config.toml"))
    except ValueError as error:  # a TOMLDecodeError names the line; a UnicodeDecodeError the byte
        raise RunDirectoryError(f"{path / 'config.toml'}: damaged: {error}", path=path) from error
    for key in ("task", "algorithm"):
        if config.get(key, info[key]) != info[key]:
            there = f"{key!r} is {info[key]!r} and {config[key]!r} in config.toml"
            raise _damaged(path / "run.json", f": damaged: {there}")
    if "config" in info:
        changed = [key for key in config_changes(info, config) if not key.startswith(CHANGEABLE)]
        if changed:
            raise _damaged(path / "config.toml", f": damaged: {changed[0]!r} is not that of the run")
        config = info["config"]
    recorded = _recorded_metrics(path, info)  # before metrics.jsonl, which grows while the run trains
    data = _read(path / "metrics.jsonl")
    lines = _read_metrics(path / "metrics.jsonl", data)
    # A resumed run may write a round twice, with equal numbers. The last line counts.
    splits = {
        split: {line["round"]: line for line in lines if line["split"] == split}
        for split in ("train", "test")
    }
    train, test = ([rounds[at] for at in sorted(rounds)] for rounds in splits.values())
    _check_complete(path / "metrics.jsonl", info, [line["round"] for line in train])
    if any(hashlib.sha256(data[:length]).hexdigest() != sha256 for length, sha256 in recorded):
        raise _damaged(path / "metrics.jsonl", ": damaged: its checksum differs; restore it")
    return RunRecord(path, info, config, train, test, _read_clients(path / "data.json"))


def _read(file: Path) -> bytes:
    try:
        return read_regular_file(file)
    except FileNotFoundError as error:
        raise RunDirectoryError(
            f"{file.parent} is not a complete run directory: {file.name} is missing", path=file.parent
        ) from error
    except OSError as error:
        raise RunDirectoryError(f"cannot read {file}: {error.strerror}", path=file.parent) from error


class _RunInfo(BaseModel):
    """The types of the entries of run.json. Older versions have fewer entries."""

    model_config = ConfigDict(strict=True, extra="allow")

    task: str
    algorithm: str
    fedopt: str | None = None
    seed: int | None = None
    rounds: NonNegativeInt | None = None
    rounds_done: NonNegativeInt | None = None
    status: str | None = None
    message: str | None = None
    command: str | None = None
    data: str | None = None
    metric: str | None = None
    better: str | None = None
    started: str | None = None
    fingerprint: dict[str, Any] | None = None
    segments: list[_SegmentInfo] | None = None
    train_loss: float | None = None
    last: float | None = None
    value: float | None = None
    params: NonNegativeInt | None = None
    x_sha256: str | None = None
    seconds: float | None = None
    rejected: NonNegativeInt | None = None
    full_test: dict[str, float | None] | None = None
    config: dict[str, Any] | None = None  # as in config.toml
    metrics: _MetricsInfo | None = None


class _MetricsInfo(BaseModel):
    """The part of metrics.jsonl that was written before run.json."""

    bytes: NonNegativeInt
    sha256: str


class _SegmentInfo(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    after_round: NonNegativeInt
    fedopt: str


def _read_info(file: Path) -> dict[str, Any]:
    try:
        info: dict[str, Any] = parse_json(_read(file))
        _RunInfo.model_validate(info)
        if not is_intact(info):
            raise ValueError("its checksum differs")
    except json.JSONDecodeError as error:
        raise _damaged(file, f":{error.lineno}: damaged: {error.msg}") from error
    except ValidationError as error:
        raise _damaged(file, f": {first_problem(error)}") from error
    except ValueError as error:
        raise _damaged(file, f": damaged: {error}") from error
    return info


def _read_clients(file: Path) -> dict[str, Any] | None:
    """Read the summary of the clients. It only describes the data, so a missing file is no error."""
    try:
        clients = parse_json(read_regular_file(file))
        if not is_intact(clients):
            raise ValueError("its checksum differs")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(file, f": damaged: {error}; remove it to continue") from error
    return {k: v for k, v in clients.items() if k != "sha256"} if isinstance(clients, dict) else None


def config_changes(info: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """The dotted keys of a config.toml that differ from those in run.json."""
    recorded, present = flatten(info["config"]), flatten(config)
    return [key for key in recorded | present if recorded.get(key) != present.get(key)]


def _recorded_metrics(path: Path, info: dict[str, Any]) -> list[tuple[int, str]]:
    """The lengths and checksums of the parts of metrics.jsonl in run.json and in the newest checkpoint."""
    recorded = [(info["metrics"]["bytes"], info["metrics"]["sha256"])] if "metrics" in info else []
    try:
        file = max(path.glob("checkpoints/*/position.json"), key=lambda file: int(file.parent.name))
        position = parse_json(read_regular_file(file))
        if is_intact(position) and position["metrics_sha256"]:
            recorded.append((int(position["metrics_bytes"]), position["metrics_sha256"]))
    except (OSError, ValueError, KeyError, TypeError):  # a damaged checkpoint does not affect the metrics
        pass
    return recorded


def _read_metrics(file: Path, data: bytes) -> list[dict[str, Any]]:
    rows = data.split(b"\n")
    lines = []
    for at, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            lines.append(_metrics_line(row))
        except ValueError as error:
            is_last = at == len(rows)  # a killed run may leave an incomplete line without a newline
            if not is_last:
                raise _damaged(file, f":{at}: damaged line: {error}") from error
    return lines


def _metrics_line(row: bytes) -> dict[str, Any]:
    line = parse_json(row)
    if not isinstance(line, dict):
        raise ValueError("expected a JSON object")
    if type(line.get("round")) is not int or line["round"] < 0:
        raise ValueError("'round' is missing or not a number from 0")
    if not isinstance(line.get("split"), str):
        raise ValueError("'split' is missing or not a string")
    strings = [key for key, value in line.items() if key != "split" and isinstance(value, str)]
    if strings:
        raise ValueError(f"{strings[0]!r} is {line[strings[0]]!r} and not a number")
    return line


def _check_complete(file: Path, info: dict[str, Any], rounds: Sequence[int]) -> None:
    """Check that no round is missing, because means over the last rounds would be wrong."""
    missing = next((at for at, found in enumerate(rounds, start=1) if at != found), None)
    last = info.get("rounds_done", info.get("rounds"))
    if missing is None and info.get("status") == "done" and isinstance(last, int):
        missing = len(rounds) + 1 if len(rounds) < last else None
    if missing is not None:
        raise _damaged(file, f": damaged: the line of round {missing} is missing")


def _damaged(file: Path, problem: str) -> RunDirectoryError:
    return RunDirectoryError(f"{file}{problem}", path=file.parent)


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert nested tables to dotted keys.

    >>> flatten({"seed": 0, "server": {"lr": 0.1}})
    {'seed': 0, 'server.lr': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def config_differences(records: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """The dotted keys whose values differ between runs, with the value of each run (None if absent)."""
    configs = [flatten(record.config) for record in records]
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: [config.get(key) for config in configs] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}
