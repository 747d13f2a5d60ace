"""Kill a run at random moments and type the same command again, until the time is spent.

Each cycle compares the result with that of an uninterrupted run: the same final model to the bit, every
round in metrics.jsonl once. Prints one line a cycle and exits 1 at the first difference.

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


def command(algorithm: str, seed: int, workers: int, out: Path) -> list[str]:
    words = [sys.executable, "-m", "fedopt", "run", "emnist_cr", "--algorithm", algorithm, "--json"]
    words += ["--rounds", str(ROUNDS), "--seed", str(seed), "--workers", str(workers), "--out", str(out)]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    return words


def finish(words: list[str]) -> dict[str, object]:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    result: dict[str, object] = json.loads(done.stdout)
    return result


def killed(words: list[str], chance: random.Random, deadline: float) -> int:
    """Start the command and kill it after a random time, again and again; the number of kills."""
    for kills in itertools.count():
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(2.0, 12.0))
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
    chance = random.Random(arguments.seed)
    deadline = time.monotonic() + arguments.seconds
    for cycle in itertools.count(1):
        if time.monotonic() > deadline:
            print(f"{cycle - 1} cycles, no difference")
            return
        algorithm = ALGORITHMS[cycle % len(ALGORITHMS)]
        with tempfile.TemporaryDirectory() as directory:
            whole, broken = Path(directory) / "whole", Path(directory) / "broken"
            expected = finish(command(algorithm, cycle, 2, whole))
            kills = killed(command(algorithm, cycle, chance.choice([1, 2, 3]), broken), chance, deadline)
            found = finish(command(algorithm, cycle, 1, broken))
            lines = [json.loads(line) for line in (broken / "metrics.jsonl").read_text().splitlines()]
            rounds = [line["round"] for line in lines if line["split"] == "train"]
        same = found["x_sha256"] == expected["x_sha256"] and rounds == list(range(1, ROUNDS + 1))
        print(f"cycle {cycle}: {algorithm}, {kills} kills, {'same' if same else 'DIFFERENT'}", flush=True)
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
