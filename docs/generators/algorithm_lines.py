"""The lines of Algorithm 2 next to the lines of the package that compute them."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import NamedTuple

from fedopt.algorithms import adaptive
from fedopt.algorithms.fedopt import FedOptClient
from generators.markdown import ROOT, format_table

SOURCE = ROOT / "src" / "fedopt"


class Line(NamedTuple):
    """A line of Algorithm 2, with a line of a file that computes it."""

    number: int
    paper: str
    file: str
    code: str


LINES = (
    Line(
        1,
        "Initialization: x<sub>0</sub>, v<sub>−1</sub> ≥ τ², β<sub>1</sub>, β<sub>2</sub> ∈ [0, 1)",
        "algorithms/adaptive.py",
        "v = tau**2 if initial_accumulator is None else initial_accumulator",
    ),
    Line(2, "for t = 0, …, T−1", "engine/loop.py", "while position.round < plan.rounds:"),
    Line(
        3,
        "sample a subset S of clients",
        "engine/loop.py",
        "cohort = setup.sampler(setup.seed, t, population, setup.cohort)",
    ),
    Line(
        4,
        "x<sub>i,0</sub> = x<sub>t</sub>",
        "algorithms/fedopt.py",
        "x_i, s = x, self.optimizer.init(x)",
    ),
    Line(
        5,
        "for each client i ∈ S in parallel",
        "engine/loop.py",
        "blocks = yield RoundJobs(setup.seed, jobs, algorithm.sent(state), setup.table.read)",
    ),
    Line(6, "for k = 0, …, K−1", "algorithms/fedopt.py", "for k, b in enumerate(work.batches()):"),
    Line(
        7,
        "compute an unbiased estimate g<sub>i,k</sub> of ∇F<sub>i</sub>(x<sub>i,k</sub>)",
        "engine/client.py",
        "gradients = self._differentiate(batch, updates_itself=bool(layers), allow_unused=True)",
    ),
    Line(
        8,
        "x<sub>i,k+1</sub> = x<sub>i,k</sub> − η<sub>l</sub> g<sub>i,k</sub>",
        "algorithms/fedopt.py",
        "x_i, s = local_step(work, self.optimizer, x_i, b, eta_l, k, s)",
    ),
    Line(
        9,
        "Δ<sub>i</sub> = x<sub>i,K</sub> − x<sub>t</sub>",
        "algorithms/fedopt.py",
        "return ClientResult((work.delta(x_i, x),))  # Delta_i^t",
    ),
    Line(
        10,
        "Δ<sub>t</sub> = (1 / &#124;S&#124;) Σ Δ<sub>i</sub>",
        "engine/loop.py",
        "mean.add_block(block.total)",
    ),
    Line(
        11,
        "m<sub>t</sub> = β<sub>1</sub> m<sub>t−1</sub> + (1 − β<sub>1</sub>) Δ<sub>t</sub>",
        "algorithms/adaptive.py",
        "m = beta1 * m + (1 - beta1) * delta  # m_t",
    ),
    Line(
        12,
        "v<sub>t</sub> = v<sub>t−1</sub> + Δ<sub>t</sub>² (FedAdagrad)",
        "algorithms/adaptive.py",
        "return _adaptive(lambda v, delta2: v + delta2, beta1, tau, initial_accumulator)",
    ),
    Line(
        13,
        "v<sub>t</sub> = v<sub>t−1</sub> − (1 − β<sub>2</sub>) Δ<sub>t</sub>² "
        "sign(v<sub>t−1</sub> − Δ<sub>t</sub>²) (FedYogi)",
        "algorithms/adaptive.py",
        "return v - (1 - beta2) * delta2 * torch.sign(v - delta2)",
    ),
    Line(
        14,
        "v<sub>t</sub> = β<sub>2</sub> v<sub>t−1</sub> + (1 − β<sub>2</sub>) Δ<sub>t</sub>² (FedAdam)",
        "algorithms/adaptive.py",
        "return beta2 * v + (1 - beta2) * delta2",
    ),
    Line(
        15,
        "x<sub>t+1</sub> = x<sub>t</sub> + η m<sub>t</sub> / (√v<sub>t</sub> + τ)",
        "algorithms/adaptive.py",
        "x = x + (eta * correction(t)) * m / (v.sqrt() + tau)",
    ),
)


def list_lines() -> str:
    """Return a table of Algorithm 2 and its code. Every quoted line must occur once in its file."""
    rows = [(line.number, line.paper, f"`{_quote(line)}`<br>{line.file}") for line in LINES]
    return format_table(("line", "Algorithm 2", "fedopt"), *rows)


def _quote(line: Line) -> str:
    found = [text for text in (SOURCE / line.file).read_text().splitlines() if line.code in text]
    if len(found) != 1:
        raise SystemExit(
            f"{line.file} has {len(found)} lines with {line.code!r}; correct line {line.number} in {__file__}"
        )
    return line.code.partition("  #")[0]


def quote_client() -> str:
    """Return the source of the client function."""
    return _fenced(inspect.getsource(FedOptClient.__call__))


def quote_server() -> str:
    """Return the source of the update of the server."""
    return _fenced(re.search(r"    def update\(.*?\n\n", inspect.getsource(adaptive._adaptive), re.S)[0])  # type: ignore[index]


def _fenced(source: str) -> str:
    return f"```py\n{textwrap.dedent(source).strip()}\n```"
