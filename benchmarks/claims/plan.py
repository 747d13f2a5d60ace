"""The runs that check the claims: names, exact commands, time limits, in the order in which they run.

Every entry is one `fedopt` command that writes one directory. Commands are executed in the working directory
of the claims, so that paths in them are relative. Later entries may depend on results of earlier ones: the
long runs use the rates that the grids selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from claims import label_skew, small_scale, tags_plan, writers_plan
from claims.entry import Entry, set_options
from claims.results import Results
from claims.tags_plan import BEST_POINTS, FULL_ROUNDS, SEEDS, TUNING_ROUNDS
from fedopt_paper.published import METHODS, OPTIMIZERS


def plan_entries(results: Results) -> list[Entry]:
    """Return all entries in the order in which they run. Some depend on results of others."""
    return [
        *tags_plan.grids(),
        *_repeatability(),
        *_padding(),
        *tags_plan.full_length(results, (0,)),
        *tags_plan.explanations(),
        *_scaffold(),
        *tags_plan.more_points(),
        *tags_plan.papers_rates(),
        *tags_plan.seeded_explanations(),
        *_digits((0,), METHODS),
        *_shakespeare(),
        *tags_plan.synthetic("synthetic", TUNING_ROUNDS),
        *writers_plan.tuning_entries(),
        *writers_plan.full_length_entries(results),
        *tags_plan.full_length(results, range(1, BEST_POINTS)),
        *_decay((0,)),
        *_centralized(),
        *_digits(range(1, SEEDS), OPTIMIZERS),
        *_shakespeare_seeds(),
        *_autoencoder_seeds(),
        *_decay(range(1, SEEDS)),
        *_characters_centralized(),
        *_later(results),
        *_reproduction(),
    ]


# -- dense tasks

_SHAKESPEARE_EVALUATION = {"eval.every": 25, "eval.last_every": 25, "eval.sample": 2000}


def _shakespeare_run(
    name: str, method: str, seed: int, rounds: int, extra: Sequence[str] = (), directory: str = ""
) -> Entry:
    arguments = ["run", "shakespeare", "--algorithm", method, "--rounds", str(rounds)]
    arguments += ["--seed", str(seed)] if seed else []
    arguments += ["--data", "data/shakespeare", "--executor", "serial", *extra]
    arguments += set_options(_SHAKESPEARE_EVALUATION)
    return Entry(name, tuple(arguments), 0.1 * rounds + 30, directory)


def _padding() -> list[Entry]:
    """Both rules for the outputs at padding."""
    zero = ["--set", "model.padding=zero"]
    return [
        _shakespeare_run("shakespeare/fedavg-0", "fedavg", 0, 300),
        _shakespeare_run("shakespeare/fedavg-zero-0", "fedavg", 0, 300, zero),
    ]


def _shakespeare() -> list[Entry]:
    methods = ("fedyogi", "fedadagrad", "fedadam", "fedavgm", "scaffold")
    return [_shakespeare_run(f"shakespeare/{method}-0", method, 0, 300) for method in methods]


def _shakespeare_seeds() -> list[Entry]:
    return [
        _shakespeare_run(f"shakespeare/{method}-{seed}", method, seed, 300)
        for seed in range(1, SEEDS)
        for method in ("fedavg", "fedyogi")
    ]


_DIGITS = {"model.classes": 10, "eval.every": 20, "eval.last_every": 20, "eval.sample": 2000}
_CHARACTERS = {"eval.every": 25, "eval.last_every": 25, "eval.sample": 2000}


def _digits_run(name: str, method: str, rounds: int, settings: Mapping[str, object], seed: int = 0) -> Entry:
    arguments = ["run", "emnist_cr", "--algorithm", method, "--rounds", str(rounds), "--seed", str(seed)]
    arguments += ["--data", "data/digits", "--executor", "serial", *set_options({**_DIGITS, **settings})]
    return Entry(name, tuple(arguments), 60)


def _digits(seeds: Iterable[int], methods: Iterable[str]) -> list[Entry]:
    return [
        _digits_run(f"digits/{method}-{seed}", method, 200, {}, seed) for seed in seeds for method in methods
    ]


def _characters_run(name: str, method: str, settings: Mapping[str, object]) -> Entry:
    arguments = ["run", "emnist_cr", "--algorithm", method, "--rounds", "300", "--executor", "serial"]
    return Entry(name, (*arguments, *set_options({**_CHARACTERS, **settings})), 120)


def _characters() -> list[Entry]:
    return [_characters_run(f"characters/{method}-0", method, {}) for method in METHODS]


# -- decay of the client rate

# The paper's schedule, x 0.1 every 500 of 1,500 rounds, scaled to shorter runs.
_DIGITS_DECAY = {"client.schedule": "staircase", "client.decay_rounds": 70}
_CHARACTERS_DECAY = {"client.schedule": "staircase", "client.decay_rounds": 100}


def _decay(seeds: Iterable[int]) -> list[Entry]:
    """The runs of `_digits` with decay."""
    return [
        _digits_run(f"decay/digits/{method}-{seed}", method, 200, _DIGITS_DECAY, seed)
        for seed in seeds
        for method in OPTIMIZERS
    ]


def _centralized() -> list[Entry]:
    """Six epochs on the union of the digits, with a constant rate and x 0.1 every two epochs."""
    settings: dict[str, object] = {"client.lr": 0.1, "eval.every": 1, "eval.last_every": 1}
    decay = {"client.schedule": "staircase", "client.decay_rounds": 2}
    return [
        _digits_run("decay/centralized/decay", "centralized", 6, settings | decay),
        _digits_run("decay/centralized/constant", "centralized", 6, settings),
    ]


def _characters_decay() -> list[Entry]:
    return [_characters_run(f"decay/characters/{m}-0", m, _CHARACTERS_DECAY) for m in OPTIMIZERS]


def _characters_centralized() -> list[Entry]:
    """30,000 steps on the union of the characters, about as many as all clients take in 300 rounds.

    A round has 100 steps, so the schedule and the evaluations are those of the federated runs.
    """
    return [
        Entry(
            f"decay/characters_centralized/{name}",
            ("sweep", "emnist_cr", "--algorithm", "centralized", "--grid", "client_lr=-1.5|-1")
            + ("--rounds", "300", "--workers", "1")
            + tuple(set_options({**_CHARACTERS, "client.steps": 100, **schedule})),
            120,
        )
        for name, schedule in {"constant": {}, "decay": _CHARACTERS_DECAY}.items()
    ]


# -- SCAFFOLD


# By population, log10 of client rates that were added because a best rate was at the edge of the first three.
MORE_SCAFFOLD_RATES = {"few": "-2.5|-2|0", "few_small": "-2.5|-2", "many": "0|0.5|1"}


def _scaffold() -> list[Entry]:
    """Both methods on few clients, which are revisited every second round, and on many.

    SCAFFOLD diverges on digits by writer with FedAvg's client rate, 0.1, so smaller ones run too.
    """
    return [
        *(_scaffold_sweep(name, name, "-1.5:-0.5:0.5") for name in label_skew.POPULATIONS),
        *(_scaffold_sweep(f"{name}_more", name, rates) for name, rates in MORE_SCAFFOLD_RATES.items()),
        Entry(
            "scaffold/digits",
            ("sweep", "emnist_cr", "--algorithm", "scaffold", "--grid", "client_lr=-2|-1.5, server_lr=0")
            + ("--rounds", "200", "--data", "data/digits", "--workers", "1", *set_options(_DIGITS)),
            120,
        ),
    ]


def _scaffold_sweep(name: str, population: str, rates: str) -> Entry:
    settings = set_options(
        {"client.steps": 50, "client.batch_size": 20, "eval.every": 20, "eval.last_every": 20}
    )
    return Entry(
        f"scaffold/{name}",
        ("sweep", f"claims.label_skew:{population}", "--algorithm", "fedavg,scaffold", "--rounds", "200")
        + ("--grid", f"client_lr={rates}, server_lr=0", "--seeds", "0:6", "--workers", "1")
        + ("--executor", "vectorised", *settings, "--set", "checkpoint.every=200"),
        60,
        own_data="data/digits",
    )


# -- repeatability


REPEATED = {  # task, algorithm, options, round after which a process is killed
    "so_lr": ("so_lr", "fedadam", ("--data", "data/so", "--rounds", "40"), 15),
    "digits": ("emnist_cr", "fedyogi", ("--data", "data/digits", "--rounds", "4"), 3),
    "shakespeare": ("shakespeare", "fedadagrad", ("--data", "data/shakespeare", "--rounds", "3"), 2),
}
REPEATED_WITH = {
    "serial": ("--executor", "serial"),
    **{f"{n} workers": ("--executor", "processes", "--workers", str(n)) for n in (1, 2, 3)},
    "killed": ("--executor", "processes", "--workers", "2"),
}


def _repeatability() -> list[Entry]:
    """The same run with other numbers of workers, and after a kill. Results must be identical to the bit."""
    settings = set_options({"eval.sample": 200, "checkpoint.every": 2})
    return [
        Entry(
            f"repeat/{case}/{name.replace(' ', '_')}",
            ("run", task, "--algorithm", method, *options, *settings, *executor),
            20,
            kill_at=kill_at if name == "killed" else 0,
        )
        for case, (task, method, options, kill_at) in REPEATED.items()
        for name, executor in REPEATED_WITH.items()
    ]


# -- runs that take many hours


def _later(results: Results) -> list[Entry]:
    return [
        *_autoencoder(),
        *_autoencoder_rates(),
        *_shakespeare_tau(),
        *tags_plan.synthetic("synthetic_1500", FULL_ROUNDS),
        *tags_plan.synthetic_tuning(),
        *tags_plan.synthetic_full_length(results),
        *_characters(),
        *_characters_decay(),
        *_shakespeare_long(),
    ]


_AUTOENCODER = {"eval.every": 50, "eval.last_every": 25, "eval.sample": 2000}


def _autoencoder() -> list[Entry]:
    settings = set_options(_AUTOENCODER)
    names: dict[str, tuple[str, list[str]]] = {f"autoencoder/{method}-0": (method, []) for method in METHODS}
    # The best server rate of `_autoencoder_rates`.
    names |= {"autoencoder/tuned/fedyogi": ("fedyogi", ["--set", "server.lr=0.01"])}
    return [
        Entry(
            name,
            ("run", "emnist_ae", "--algorithm", method, "--rounds", "1000", "--data", "data/digits")
            + ("--executor", "serial", *rates, *settings),
            240,
        )
        for name, (method, rates) in names.items()
    ]


def _autoencoder_seeds() -> list[Entry]:
    """More seeds of the methods that are compared, for 300 of the 1,000 rounds."""
    others = [
        _seeded_autoencoder("seeds", method, seed, {})
        for seed in range(1, SEEDS)
        for method in ("fedyogi", "fedadam", "fedavgm", "fedavg")
    ]
    tuned = [
        _seeded_autoencoder("tuned_seeds", method, seed, {"server.lr": 0.01})
        for seed in range(SEEDS)
        for method in ("fedyogi", "fedadam")
    ]
    return [*others, *tuned]


def _seeded_autoencoder(directory: str, method: str, seed: int, rates: Mapping[str, object]) -> Entry:
    return Entry(
        f"autoencoder/{directory}/{method}-{seed}",
        ("run", "emnist_ae", "--algorithm", method, "--rounds", "300", "--seed", str(seed))
        + ("--data", "data/digits", "--executor", "serial", *set_options({**rates, **_AUTOENCODER})),
        60,
    )


def _autoencoder_rates() -> list[Entry]:
    """Why FedAdam and FedYogi do not learn with the paper's rates: rates, mathematics, local steps."""
    settings = set_options(
        {"eval.every": 50, "eval.last_every": 50, "eval.sample": 2000, "checkpoint.every": 200}
    )
    options = ("--rounds", "200", "--data", "data/digits", "--workers", "1", *settings)
    grids = {
        "rates": ("fedyogi", "--grid", "client_lr=0:1:1, server_lr=-3:-2:0.5, tau=-3"),
        "as_run": (
            "fedyogi",
            "--grid",
            "client_lr=1, server_lr=-2.5|-1.5, tau=-3",
            "--set",
            "variant=as_run",
        ),
        "fedadam_rates": ("fedadam", "--grid", "client_lr=1, server_lr=-2.5|-2, tau=-3"),
        # Writers of the paper have about 200 images, ours 111: two epochs give as many steps.
        "two_epochs": (
            *("fedyogi", "--grid", "client_lr=1, server_lr=-2|-1.5, tau=-3"),
            *("--set", "client.epochs=2"),
        ),
    }
    return [
        Entry(f"autoencoder/{name}", ("sweep", "emnist_ae", "--algorithm", *grid, *options), 120)
        for name, grid in grids.items()
    ]


# By name of the entry: method, log10 of tau, log10 of server rates. One tau per entry: trials take minutes.
TEXT_TAU = {
    f"shakespeare/tau/{method}/tau{tau}": (method, tau, rates)
    for method, rates in {"fedyogi": "-2|-1", "fedadam": "-2|-1", "fedadagrad": "-1.5|-0.5"}.items()
    for tau in (-3, -5, -1, -4, -2)
}
# For the largest tau the larger of these server rates is far better, so one more runs.
MORE_TEXT_TAU = {
    f"shakespeare/tau_more/{method}/tau-1": (method, -1, "0") for method in ("fedyogi", "fedadam")
}


def _shakespeare_tau() -> list[Entry]:
    """Values of tau at the paper's client rate and at two server rates."""
    settings = {"eval.every": 50, "eval.last_every": 25, "eval.sample": 2000, "checkpoint.every": 50}
    return [
        Entry(
            name,
            ("sweep", "shakespeare", "--algorithm", method, "--rounds", "100", "--data", "data/shakespeare")
            + (
                "--grid",
                f"client_lr=0, server_lr={rates}, tau={tau}",
                "--workers",
                "1",
                *set_options(settings),
            ),
            60,
        )
        for name, (method, tau, rates) in (TEXT_TAU | MORE_TEXT_TAU).items()
    ]


def _shakespeare_long() -> list[Entry]:
    order = ("fedavg", "fedyogi", "fedadagrad", "fedadam", "fedavgm", "scaffold")
    return [
        _shakespeare_run(
            f"shakespeare/{method}-0-1500", method, 0, FULL_ROUNDS, (), f"shakespeare/{method}-0"
        )
        for method in order
    ]


# -- the small scale of `fedopt reproduce`


def _reproduction() -> list[Entry]:
    command = ("reproduce", "all", "--scale", "small", "--data", "synthetic", "--workers", "2")
    return [Entry(small_scale.ENTRY, command, 600, "reproduction")]
