"""Kill a run at random times and repeat its command until it is done, for a given time.

Each cycle compares the result with an uninterrupted run. The final models must be bit-identical, and
metrics.jsonl must contain every round once. Print one line per cycle and exit with 1 at the first difference.

    python benchmarks/soak.py --seconds 600
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALGORITHMS = ("fedyogi", "scaffold", "adaalter", "fedavg")
ROUNDS = 8
SETTINGS = {
    "data.clients": 20,
    "clients_per_round": 6,
    "client.steps": 2,
    "eval.sample": 200,
    "eval.every": 3,
    "checkpoint.every": 2,
}


def build_command(algorithm: str, seed: int, workers: int, out: Path) -> list[str]:
    words = [sys.executable, "-m", "fedopt", "run", "emnist_cr", "--algorithm", algorithm, "--json"]
    words += ["--rounds", str(ROUNDS), "--seed", str(seed), "--workers", str(workers), "--out", str(out)]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    return words


def run_to_end(words: list[str]) -> dict[str, object]:
    process = subprocess.run(words, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}\n{process.stderr}")
    result: dict[str, object] = json.loads(process.stdout)
    return result


def run_with_kills(words: list[str], generator: random.Random, deadline: float) -> int:
    """Kill the command after random times and restart it. Return the number of kills."""
    for kills in itertools.count():
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=generator.uniform(2.0, 12.0))
            return kills
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if time.monotonic() > deadline:
            return kills + 1
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    deadline = time.monotonic() + arguments.seconds
    for cycle in itertools.count(1):
        if time.monotonic() > deadline:
            print(f"{cycle - 1} cycles, no difference")
            return
        algorithm = ALGORITHMS[cycle % len(ALGORITHMS)]
        with tempfile.TemporaryDirectory() as directory:
            uninterrupted, killed = Path(directory) / "uninterrupted", Path(directory) / "killed"
            expected = run_to_end(build_command(algorithm, cycle, 2, uninterrupted))
            workers = generator.choice([1, 2, 3])
            kills = run_with_kills(build_command(algorithm, cycle, workers, killed), generator, deadline)
            resumed = run_to_end(build_command(algorithm, cycle, 1, killed))
            records = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
            rounds = [record["round"] for record in records if record["split"] == "train"]
        same = resumed["x_sha256"] == expected["x_sha256"] and rounds == list(range(1, ROUNDS + 1))
        print(f"cycle {cycle}: {algorithm}, {kills} kills, {'same' if same else 'DIFFERENT'}", flush=True)
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
