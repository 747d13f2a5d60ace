"""The runs of the small network on digits by writer: grids, tau, decay of the client rate, SCAFFOLD.

Grids have 500 rounds. Decay and SCAFFOLD have 1,500 rounds, as many as the paper's runs on EMNIST.
"""

from __future__ import annotations

from collections.abc import Sequence

from claims.digit_data import STORE
from claims.entry import Entry, set_options
from claims.results import Results
from claims.selection import best_points
from fedopt_paper.published import ADAPTIVE, OPTIMIZERS

TASK = "claims.writers:writers"
GRID_ROUNDS, FULL_ROUNDS, CENTRAL_EPOCHS = 500, 1500, 30
SEEDS = 3
# Schedules of the client rate. "decay" is the paper's: x 0.1 every 500 rounds.
SCHEDULES: dict[str, dict[str, object]] = {
    "constant": {},
    "decay": {"client.schedule": "staircase", "client.decay_rounds": 500},
}
# Server rates of the runs of full length: around the best ones after 500 rounds. Larger rates of FedAvg and
# FedAvgM are worse there.
_SERVER_RATES = {
    "fedadagrad": "-1.5:-0.5:0.5",
    "fedadam": "-2.5:-1:0.5",
    "fedyogi": "-2.5:-1:0.5",
    "fedavgm": "-1:0:0.5",
    "fedavg": "-0.5:0.5:0.5",
}
_SETTINGS = {"clients_per_round": 10, "client.batch_size": 20, "eval.every": 100, "eval.last_every": 25}


def tuning_entries() -> list[Entry]:
    """Heat maps with the same points for all methods, and values of tau."""
    grid = "client_lr=-2:0:0.5, server_lr=-2.5:1.5:0.5, tau=-3"
    taus = "client_lr=-1.5:-0.5:0.5, server_lr=-2.5:0:0.5, tau=-5|-4|-2|-1"
    more_seeds = ("--seeds", f"1:{SEEDS}")
    return [
        *(_sweep(f"writers/grid/{method}", method, grid, GRID_ROUNDS) for method in OPTIMIZERS),
        *(_sweep(f"writers/grid_seeds/{m}", m, grid, GRID_ROUNDS, more_seeds) for m in OPTIMIZERS),
        *(_sweep(f"writers/tau/{method}", method, taus, GRID_ROUNDS) for method in ADAPTIVE),
        *(_sweep(f"writers/tau_seeds/{m}", m, taus, GRID_ROUNDS, more_seeds) for m in ADAPTIVE),
    ]


def full_length_entries(results: Results) -> list[Entry]:
    """Constant rate and decay, each tuned, then with several seeds; SCAFFOLD; centralized training."""
    sweeps = [
        _sweep(
            f"writers/{name}/{method}",
            method,
            f"client_lr=-1.5:0:0.5, server_lr={_SERVER_RATES[method]}, tau=-3",
            FULL_ROUNDS,
            set_options(settings),
        )
        for method in OPTIMIZERS
        for name, settings in SCHEDULES.items()
    ]
    scaffold = _sweep(
        "writers/scaffold",
        "fedavg,scaffold",
        "client_lr=-1.5:0:0.5, server_lr=0",
        FULL_ROUNDS,
        ("--seeds", f"0:{SEEDS}"),
    )
    # The best rate of the first sweep is the smallest one.
    more_rates = _centralized("_more", "client_lr=-2.5:-1.5:0.5", ("--seeds", f"0:{SEEDS}"))
    return [*sweeps, scaffold, _centralized("", "client_lr=-1.5:0:0.5"), more_rates, *_seeds(results)]


def _centralized(suffix: str, grid: str, extra: Sequence[str] = ()) -> Entry:
    arguments = ("sweep", TASK, "--algorithm", "centralized", "--grid", grid, "--workers", "1", *extra)
    options = set_options({"client.batch_size": 20, "eval.every": 1})
    return Entry(
        f"writers/centralized{suffix}",
        (*arguments, "--rounds", str(CENTRAL_EPOCHS), *options),
        60,
        own_data=STORE.as_posix(),
    )


def _seeds(results: Results) -> list[Entry]:
    """The rates with the smallest training loss of each sweep of full length, with several seeds."""
    found = []
    for name, settings in SCHEDULES.items():
        for method in OPTIMIZERS:
            for trial in best_points(results, [f"writers/{name}/{method}"], method, 1):
                rates = {"client.lr": trial.client_lr, "server.lr": trial.server_lr}
                rates |= {} if trial.tau is None else {"server.tau": trial.tau}
                arguments = ("run", TASK, "--algorithm", method, "--rounds", str(FULL_ROUNDS))
                seeds = ("--seeds", f"0:{SEEDS}", "--executor", "compiled")
                options = set_options({**rates, **settings, **_SETTINGS})
                entry = Entry(f"writers/seeds/{name}/{method}", (*arguments, *seeds, *options), 60)
                found.append(entry._replace(own_data=STORE.as_posix()))
    return found


def _sweep(name: str, methods: str, grid: str, rounds: int, extra: Sequence[str] = ()) -> Entry:
    arguments = ("sweep", TASK, "--algorithm", methods, "--grid", grid, "--rounds", str(rounds))
    options = ("--executor", "compiled", "--workers", "1", *extra)
    settings = set_options({**_SETTINGS, "checkpoint.every": rounds})
    return Entry(name, (*arguments, *options, *settings), 60, own_data=STORE.as_posix())
