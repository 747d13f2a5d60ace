"""Estimated and actual CPU times of runs.

`python -m claims estimate` measures steps of each task and stores estimates; the page compares them with the
CPU times that the runner has recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from claims.markdown import table
from claims.results import EntryResult, Results
from fedopt.engine.evaluate import is_evaluated
from fedopt.engine.model_evaluation import EVAL_BATCH
from fedopt.files import write_atomically
from fedopt.formatting import ABSENT
from fedopt.reproduction.cost_estimate import STARTUP_SECONDS, StepTimes, measure_step_times
from fedopt.reproduction.published import TASK_NAMES
from fedopt.runs.records import RunRecord
from fedopt.tasks import TASKS

ESTIMATES = Path(__file__).parent / "estimates.json"


def is_timed(result: EntryResult) -> bool:
    """Whether the recorded CPU time covers all work: runs in one process, and sweeps with one worker."""
    words = result.command.split()
    in_one = "serial" in words or "sweep" in words
    return result.complete and in_one and (result.cpu_seconds or 0) > 60


def store_estimates(results: Results, work: Path) -> Path:
    """Measure steps of the tasks that have timed entries, and store estimates in seconds."""
    timed = [result for result in results.values() if is_timed(result) and result.done]
    tasks = sorted({r.info["task"] for result in timed for r in result.done} & set(TASK_NAMES))
    times = measure_step_times(tasks)
    estimates = {
        result.name: round(sum(estimate_seconds(r, times[r.info["task"]], work) for r in result.done), 1)
        for result in timed
        if result.done[0].info["task"] in times
    }
    write_atomically(ESTIMATES, json.dumps(estimates, indent=1) + "\n")
    return ESTIMATES


def estimate_seconds(record: RunRecord, times: StepTimes, work: Path) -> float:
    """Estimate the CPU time of a run as `fedopt reproduce list` does, from the sizes of its clients."""
    config, source = record.config, record.config["data.source"]
    federation = TASKS[record.info["task"]].federation(
        source if source == "synthetic" else str(work / source)
    )
    steps = float(np.ceil(federation.train.sizes / config["client.batch_size"]).mean())
    rounds = config["rounds"]
    evaluations = sum(
        is_evaluated(t, rounds, config["eval.every"], config["eval.last_every"]) for t in range(rounds + 1)
    )
    examples = evaluations * (config["eval.sample"] or int(federation.test.sizes.sum()))
    training = rounds * config["clients_per_round"] * steps * times.step
    return float(STARTUP_SECONDS + training + examples / EVAL_BATCH * times.evaluation)


def times_table(results: Results) -> str:
    """Return the table of estimated and actual CPU times."""
    estimates: Mapping[str, float] = json.loads(ESTIMATES.read_text()) if ESTIMATES.exists() else {}
    rows = []
    for name, result in sorted(results.items()):
        if is_timed(result):
            actual, estimate = result.cpu_seconds or 0.0, estimates.get(name)
            rounds = sum(record.rounds for record in result.done)
            ratio = ABSENT if estimate is None else f"{actual / estimate:.1f}"
            rows.append([f"`{name}`", f"{len(result.done)}", f"{rounds:,}", f"{actual / 60:.1f}"])
            rows[-1] += [ABSENT if estimate is None else f"{estimate / 60:.1f}", ratio]
    header = ["entry", "runs", "rounds", "CPU minutes", "estimate", "actual / estimate"]
    return table(header, rows) if rows else "No timed run is complete."
