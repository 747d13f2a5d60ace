"""Write run directories with known numbers, and read them back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedopt.runs.records import RunRecord, read_run

MB = 1_000_000
INFO = {"fedopt": "0.1.0", "task": "emnist_cr", "seed": 0, "status": "done", "data": "synthetic"}
INFO |= {"metric": "accuracy", "better": "higher", "params": 1206590, "started": "2026-11-15T20:00:00+00:00"}


def write_run(path: Path, name: str = "fedavg", values: tuple[float, ...] = (), **info: Any) -> RunRecord:
    """A run of four rounds, evaluated at 0, 2 and 4; an `info` value of None leaves its key out."""
    config, per_round = info.pop("config", "seed = 0\n"), info.pop("per_round", 10 * MB)
    metric = info.get("metric") or "accuracy"
    lines = [{"round": t, "split": "train", "loss": 1 / t, "bytes_total": per_round * t} for t in range(1, 5)]
    lines += [{"round": 2 * i, "split": "test", metric: v} for i, v in enumerate(values or (0.1, 0.5, 0.7))]
    known = INFO | {"algorithm": name, "rounds": 4, "command": f"fedopt run --algorithm {name}"} | info
    path.mkdir(parents=True)
    write_lines(path, lines)
    (path / "run.json").write_text(json.dumps({key: v for key, v in known.items() if v is not None}))
    (path / "config.toml").write_text(config)
    return read_run(path)


def read_lines(run: Path, split: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, of one split if given, without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [line for line in lines if split is None or line["split"] == split]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in kept]


def read_info(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def remove_checksums(run: Path, **changes: Any) -> None:
    """Make a run directory like one of version 0.2.0, whose files may be edited, and change its run.json."""
    info = read_info(run) | {"sha256": None, "config": None, "metrics": None} | changes
    (run / "run.json").write_text(json.dumps({key: v for key, v in info.items() if v is not None}))
    for file in run.glob("checkpoints/*/position.json"):
        fields = json.loads(file.read_text())
        for name in ("sha256", "config_sha256", "metrics_sha256"):
            fields.pop(name, None)
        text = json.dumps(fields, sort_keys=True)
        file.write_text(json.dumps(fields | {"sha256": hashlib.sha256(text.encode()).hexdigest()}))
    if (run / "data.json").exists():
        clients = json.loads((run / "data.json").read_text())
        clients.pop("sha256", None)
        (run / "data.json").write_text(json.dumps(clients))


def write_lines(run: Path, lines: list[dict[str, Any]], end: str = "") -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + end)


def write_trial(
    path: Path,
    name: str = "fedavg",
    rates: tuple[float, ...] = (0.1, 1.0),
    value: float | None = 0.5,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    **info: Any,
) -> RunRecord:
    """A run at client rate, server rate and, where there is a third, tau; its `value` is the final one."""
    server: dict[str, Any] = {"lr": rates[1]}
    if len(rates) == 3:
        server |= {"tau": rates[2], "initial_accumulator": rates[2] ** 2}  # as a resolved config has it
    config = {"seed": seed, "client": {"lr": rates[0]}, "server": server} | dict(settings or {})
    last = 0.0 if value is None else value
    given = {"value": value, "seed": seed} | info
    return write_run(path, name, (0.0, last, last), config=tomli_w.dumps(config), **given)


def write_seeds(root: Path, name: str, values: tuple[float, ...], **info: Any) -> list[RunRecord]:
    """One run for each value, with the seeds 0, 1, 2, ..."""
    return [
        write_trial(root / f"{name}-{seed}", name, (0.1, 1.0), value, seed=seed, **info)
        for seed, value in enumerate(values)
    ]


def write_seeded(root: Path) -> list[RunRecord]:
    """Three seeds of two algorithms. Those of fedadam end at 0.5, 0.6 and 0.7."""
    records = []
    for name, first in (("fedavg", 0.2), ("fedadam", 0.5)):
        for seed in range(3):
            value = first + 0.1 * seed
            info = {"config": f"seed = {seed}\n", "seed": seed, "value": value}
            records.append(write_run(root / f"{name}-{seed}", name, (0.1, value, value), **info))
    return records


def write_grid(root: Path, name: str = "fedadam", taus: tuple[float, ...] = (1e-3, 1e-1)) -> list[RunRecord]:
    """A 4 x 4 grid for each tau. The best value is 0.44 at client rate 1, server rate 10, the second tau.

    The corner with the smallest client rate and the largest server rate has diverged.
    """
    records = []
    for t, tau in enumerate(taus):
        for c in range(4):
            for s in range(4):
                rates, value = (10.0 ** (c - 3), 10.0 ** (s - 2), tau), 0.03 * (c + s) + 0.26 * t
                info = {"train_loss": 1.0 - 0.1 * c, "status": "diverged" if (c, s) == (0, 3) else "done"}
                records.append(write_trial(root / f"{name}-{c}{s}{t}", name, rates, value, **info))
    return records
