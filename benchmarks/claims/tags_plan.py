"""The runs on the tags of Stack Overflow: grids, tau, runs of full length, and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from claims.entry import Entry, set_options
from claims.results import Results
from claims.selection import best_points
from fedopt.reports import log10
from fedopt_paper.published import ADAPTIVE, OPTIMIZERS, paper_settings

SEEDS = 3  # of the comparisons with confidence intervals
BEST_POINTS = 3  # of each method, that run at full length
GRID = "so_lr/grid"  # heat maps of client and server rate
GRIDS = (f"{GRID}_coarse", f"{GRID}_middle")
MORE_POINTS = {  # that complete the rectangle, and one more server rate: some best rates are at the edge
    f"{GRID}_wide": "client_lr=1|2|3, server_lr=1.5, tau=-3",
    f"{GRID}_left": "client_lr=0, server_lr=-1.5|-0.5|0.5|1.5, tau=-3",
    f"{GRID}_between": "client_lr=1.5|2.5, server_lr=-2|1.5, tau=-3",
}
TAU = "so_lr/tau"
TUNING_ROUNDS, FULL_ROUNDS = 300, 1500

# The full test set has 1,924 questions. Checkpoints of short trials are not needed.
_EVALUATION = {"eval.every": 50, "eval.last_every": 25, "eval.sample": 0}
_TRIAL = {**_EVALUATION, "checkpoint.every": TUNING_ROUNDS, "checkpoint.keep": 1}


def _sweep(name: str, methods: Iterable[str], grid: str, extra: Sequence[str] = ()) -> Entry:
    arguments = ["sweep", "so_lr", "--algorithm", ",".join(methods), "--grid", grid]
    arguments += ["--rounds", str(TUNING_ROUNDS), "--data", "data/so", "--workers", "1"]
    directory = GRID if name.startswith((GRID, TAU)) else name  # these grids share their trials
    return Entry(name, (*arguments, *extra, *set_options(_TRIAL)), 240, directory)


def grids() -> list[Entry]:
    tuned = ("fedadagrad", "fedavg", "fedadam", "fedyogi", "fedavgm")
    return [
        _sweep(f"{GRID}_coarse", tuned, "client_lr=0:3:1, server_lr=-2:1:1, tau=-3"),
        _sweep(f"{GRID}_middle", tuned, "client_lr=1:3:0.5, server_lr=-1.5:1:0.5, tau=-3"),
        _sweep(TAU, ADAPTIVE, "client_lr=2, server_lr=-1:1:0.5, tau=-5:-1:1"),
        _sweep(f"{TAU}_clients", ADAPTIVE, "client_lr=1|3, server_lr=-1:1:0.5, tau=-5|-4|-2|-1"),
    ]


def explanations() -> list[Entry]:
    """Why FedAdam and FedYogi trail FedAdagrad: beta2 and the mathematics of the authors' code."""
    grid = "client_lr=2, server_lr=-1:0.5:0.5, tau=-3"
    slow = ("fedadam", "fedyogi")
    changes = {
        "beta2_0.9": ["--set", "server.beta2=0.9"],
        "beta2_0.999": ["--set", "server.beta2=0.999"],
        "as_run": ["--set", "variant=as_run"],
    }
    return [_sweep(f"so_lr/{name}", slow, grid, extra) for name, extra in changes.items()]


# Changes of FedAdam and FedYogi that run with several seeds, by the name of the entry.
SEEDED_CHANGES: dict[str, dict[str, object]] = {
    "default": {},
    "beta2_0.9": {"server.beta2": 0.9},
    "as_run": {"variant": "as_run"},
}


def seeded_explanations() -> list[Entry]:
    """The changes with several seeds at one setting, so that differences are paired by seed."""
    settings = {"client.lr": 100.0, "server.lr": 1.0, "server.tau": 0.001, **_TRIAL}
    return [
        Entry(
            f"so_lr/seeds/{name}/{method}",
            ("run", "so_lr", "--algorithm", method, "--rounds", str(TUNING_ROUNDS), "--seeds", f"0:{SEEDS}")
            + ("--data", "data/so", "--executor", "serial", *set_options({**settings, **change})),
            60,
        )
        for name, change in SEEDED_CHANGES.items()
        for method in ("fedadam", "fedyogi")
    ]


def full_length(results: Results, places: Iterable[int]) -> list[Entry]:
    """The points of each method at these places by training loss, at full length with several seeds."""
    points = {method: best_points(results, (*GRIDS, TAU), method, BEST_POINTS) for method in OPTIMIZERS}
    found = [(m, points[m][place]) for place in places for m in OPTIMIZERS if place < len(points[m])]
    return [_full(method, t.client_lr, t.server_lr, t.tau) for method, t in found]


def papers_rates() -> list[Entry]:
    """The paper's rates of two methods at full length. Training losses after 300 rounds select others."""
    return [_full("fedavgm", 100.0, 1.0, None), _full("fedadagrad", 100.0, 10.0, 0.01)]


def _full(method: str, client_lr: float, server_lr: float, tau: float | None) -> Entry:
    name, settings = _rates(client_lr, server_lr, tau)
    settings |= {**_EVALUATION, "checkpoint.every": 500, "checkpoint.keep": 1}
    arguments = ["run", "so_lr", "--algorithm", method, "--rounds", str(FULL_ROUNDS), "--seeds", f"0:{SEEDS}"]
    arguments += ["--data", "data/so", "--executor", "serial", *set_options(settings)]
    return Entry(f"so_lr/full/{method}_{name}", tuple(arguments), 60)


def _rates(client_lr: float, server_lr: float, tau: float | None) -> tuple[str, dict[str, object]]:
    """Return the part of an entry's name that gives its rates, and the settings."""
    rates = {"client": client_lr, "server": server_lr, "tau": tau}
    name = "_".join(f"{axis}{log10(rate):g}" for axis, rate in rates.items() if rate is not None)
    settings: dict[str, object] = {"client.lr": client_lr, "server.lr": server_lr}
    return name, settings | ({} if tau is None else {"server.tau": tau})


# On the synthetic twin.
_SYNTHETIC = {"eval.every": 50, "eval.last_every": 25, "checkpoint.every": 100, "checkpoint.keep": 1}


def synthetic(directory: str, rounds: int) -> list[Entry]:
    """The paper's rates on the synthetic twin."""
    return [_synthetic_run(f"so_lr/{directory}/{method}", method, rounds, {}) for method in OPTIMIZERS]


def _synthetic_run(name: str, method: str, rounds: int, rates: Mapping[str, object]) -> Entry:
    arguments = ("run", "so_lr", "--algorithm", method, "--rounds", str(rounds), "--executor", "serial")
    return Entry(name, (*arguments, "--seeds", f"0:{SEEDS}", *set_options({**rates, **_SYNTHETIC})), 60)


def synthetic_tuning() -> list[Entry]:
    """Successive halving on the synthetic twin."""
    grid = "client_lr=1:3:0.5, server_lr=-1.5:1:0.5, tau=-5|-3|-2"
    return [
        Entry(
            f"so_lr/synthetic_tuning/{method}",
            ("sweep", "so_lr", "--algorithm", method, "--search", "halving", "--grid", grid)
            + ("--rounds", str(TUNING_ROUNDS), "--workers", "1", *set_options(_SYNTHETIC)),
            120,
        )
        for method in ("fedavgm", "fedadam", "fedavg", "fedyogi", "fedadagrad")
    ]


def synthetic_full_length(results: Results) -> list[Entry]:
    """The best points of each method on the synthetic twin, except the paper's rates, which have run."""
    points = {method: synthetic_points(results, method) for method in OPTIMIZERS}
    return [
        _synthetic_run(name, method, FULL_ROUNDS, settings)
        for place in range(BEST_POINTS)
        for method in OPTIMIZERS
        for name, settings in points[method][place : place + 1]
        if name != f"so_lr/synthetic_1500/{method}"
    ]


def synthetic_points(results: Results, method: str) -> list[tuple[str, dict[str, object]]]:
    """Return the entries and settings of the best points of the halving search, the best first."""
    found = best_points(results, (f"so_lr/synthetic_tuning/{method}",), method, BEST_POINTS)
    points = [_rates(trial.client_lr, trial.server_lr, trial.tau) for trial in found]
    published = "_".join(
        f"{axis}{rate:g}"
        for axis, rate in zip(("client", "server", "tau"), paper_settings("so_lr").rates[method], strict=True)
        if rate is not None
    )
    tuned = "so_lr/synthetic_tuned"
    return [
        (f"so_lr/synthetic_1500/{method}" if name == published else f"{tuned}/{method}_{name}", settings)
        for name, settings in points
    ]


def more_points() -> list[Entry]:
    return [_sweep(name, OPTIMIZERS, grid) for name, grid in MORE_POINTS.items()]
