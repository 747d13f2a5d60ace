"""Configurations: the paper's settings as defaults, and everything that can be wrong said at once."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopt.algorithms import ALGORITHMS
from fedopt.errors import RunDirectoryError, UserError
from fedopt.runs.config import from_document, read_config
from fedopt.runs.records import flatten
from fedopt.runs.resolve import parse_settings, resolve
from fedopt.tasks import TASKS

# Typed in from the paper: the text of Section 4 (rounds, clients), the table of batch sizes, and log10 of
# client rate, server rate and tau from the two tables of best hyperparameters.
ROUNDS = {"emnist_cr": 1500, "emnist_ae": 3000}
CLIENTS_PER_ROUND = 10
BATCH_SIZE = 20
BEST: dict[tuple[str, str], tuple[float, float, float | None]] = {
    ("emnist_ae", "fedadagrad"): (1.5, -1.5, -3),
    ("emnist_ae", "fedadam"): (1, -1.5, -3),
    ("emnist_ae", "fedyogi"): (1, -1.5, -3),
    ("emnist_ae", "fedavgm"): (0.5, 0, None),
    ("emnist_ae", "fedavg"): (1, 0, None),
    ("emnist_cr", "fedadagrad"): (-1.5, -1, -2),
    ("emnist_cr", "fedadam"): (-1.5, -2.5, -4),
    ("emnist_cr", "fedyogi"): (-1.5, -2.5, -4),
    ("emnist_cr", "fedavgm"): (-1.5, -0.5, None),
    ("emnist_cr", "fedavg"): (-1, 0, None),
}
CR = TASKS["emnist_cr"]


def resolved(algorithm: str = "fedavg", task: str = "emnist_cr", **keys: Any) -> dict[str, Any]:
    """The configuration as dotted keys; server__lr=0.1 stands for server.lr."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    return flatten(resolve(TASKS[task], algorithm, dotted).document())


def problem(algorithm: str, changes: dict[str, Any], task: str = "emnist_cr") -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(UserError) as caught:
        resolve(TASKS[task], algorithm, changes)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- defaults


@pytest.mark.parametrize(("task", "algorithm"), BEST)
def test_defaults_are_the_papers_tables(task: str, algorithm: str) -> None:
    client_lr, server_lr, tau = BEST[task, algorithm]
    config = resolved(algorithm, task)
    assert config["client.lr"] == pytest.approx(10**client_lr)
    assert config["server.lr"] == pytest.approx(10**server_lr)
    assert config.get("server.tau") == (None if tau is None else pytest.approx(10**tau))
    assert (config["rounds"], config["clients_per_round"]) == (ROUNDS[task], CLIENTS_PER_ROUND)
    assert (config["client.batch_size"], config["client.epochs"]) == (BATCH_SIZE, 1)
    assert (config["client.optimizer"], config["client.schedule"]) == ("sgd", "constant")


MOMENTS: dict[str, dict[str, Any]] = {
    # "we fix a momentum parameter beta1 = 0.9 and a second moment parameter beta2 = 0.99"; Adagrad has
    # beta1 = 0; "a momentum parameter of 0 (FedAvg), and 0.9 (FedAvgM)"
    "fedadagrad": {"server.optimizer": "adagrad", "server.beta1": 0.0},
    "fedadam": {"server.optimizer": "adam", "server.beta1": 0.9, "server.beta2": 0.99},
    "fedyogi": {"server.optimizer": "yogi", "server.beta1": 0.9, "server.beta2": 0.99},
    "fedavgm": {"server.optimizer": "sgdm", "server.momentum": 0.9},
    "fedavg": {"server.optimizer": "sgd"},
}


@pytest.mark.parametrize("algorithm", MOMENTS)
def test_moments_are_the_papers(algorithm: str) -> None:
    config = resolved(algorithm)
    found = {key: value for key, value in config.items() if key in ("server.optimizer", "server.momentum")}
    found |= {key: value for key, value in config.items() if key.startswith("server.beta")}
    assert found == MOMENTS[algorithm]
    assert config["variant"] == "as_printed"
    assert config.get("server.bias_correction", False) is False


@pytest.mark.parametrize("task", ROUNDS)
def test_scaffold_takes_fedavgs_rates_because_the_paper_prints_none(task: str) -> None:
    fedavg, scaffold = resolved("fedavg", task), resolved("scaffold", task)
    for key in ("client.lr", "server.lr", "rounds", "clients_per_round", "client.batch_size"):
        assert scaffold[key] == fedavg[key]
    assert scaffold["client.option"] == "II"  # the printed algorithm


def test_the_reduction_of_the_loss_is_the_one_the_rates_were_tuned_for() -> None:
    assert resolved(task="emnist_cr")["loss.reduction"] == "mean"
    assert resolved(task="emnist_ae")["loss.reduction"] == "sum"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("task", TASKS)
def test_every_algorithm_has_a_configuration_on_every_task(task: str, algorithm: str) -> None:
    config = resolved(algorithm, task)
    assert (config["task"], config["algorithm"]) == (task, algorithm)


# -- variants

KERAS = {
    "server.bias_correction": (False, True),
    "server.first_step": (1, 2),
    "server.initial_accumulator": (1e-8, 0.0),  # tau^2 with tau = 10^-4
}
CHANGED_BY_AS_RUN: dict[str, dict[str, tuple[Any, Any]]] = {
    "fedavg": {},
    "fedavgm": {"server.fold_rate": (False, True)},
    "fedadagrad": {"server.initial_accumulator": (1e-4, 0.0)},
    "fedadam": KERAS,
    "fedyogi": KERAS,
    "scaffold": {},
}


@pytest.mark.parametrize("algorithm", CHANGED_BY_AS_RUN)
def test_the_variant_changes_the_stated_arguments_of_the_server_and_no_others(algorithm: str) -> None:
    printed, run = resolved(algorithm), resolved(algorithm, variant="as_run")
    assert printed.keys() == run.keys()
    changed = {key: (printed[key], run[key]) for key in printed if printed[key] != run[key]}
    expected = {"variant": ("as_printed", "as_run"), **CHANGED_BY_AS_RUN[algorithm]}
    assert {
        key: pytest.approx(value) if key != "variant" else value for key, value in expected.items()
    } == changed


def test_the_variant_leaves_the_clients_optimizer_alone() -> None:
    both = [
        resolved("fedopt", client__optimizer="adam", variant=variant) for variant in ("as_printed", "as_run")
    ]
    printed, run = ({k: v for k, v in config.items() if k.startswith("client.")} for config in both)
    assert printed == run


def test_an_argument_that_is_set_wins_over_the_variant() -> None:
    config = resolved(
        "fedyogi", variant="as_run", server__bias_correction=False, server__initial_accumulator=0.5
    )
    assert (config["server.bias_correction"], config["server.initial_accumulator"]) == (False, 0.5)
    assert config["server.first_step"] == 2


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedadam", "fedyogi"])
def test_the_initial_accumulator_is_tau_squared_whatever_tau_is(algorithm: str) -> None:
    assert resolved(algorithm, server__tau=0.03)["server.initial_accumulator"] == pytest.approx(9e-4)
    assert resolved(algorithm, server__tau=0.03, variant="as_run")["server.initial_accumulator"] == 0
    both = resolved(algorithm, server__tau=0.03, server__initial_accumulator=0.25)
    assert (both["server.tau"], both["server.initial_accumulator"]) == (0.03, 0.25)


def test_the_clients_initial_accumulator_follows_its_own_tau() -> None:
    config = resolved(
        "fedopt", client__optimizer="yogi", client__tau=0.5, server__optimizer="adam", server__tau=0.1
    )
    assert config["client.initial_accumulator"] == pytest.approx(0.25)
    assert config["server.initial_accumulator"] == pytest.approx(0.01)


# -- what is refused


def test_all_problems_are_told_at_once() -> None:
    message = problem(
        "fedyogi",
        {"client.lr": -1.0, "rounds": 0, "server.taux": 1, "server.momentum": 0.5, "weighting": "tokens"},
    )
    assert "5 problems" in message
    for key in ("client.lr", "rounds", "server.taux", "server.momentum", "weighting=tokens"):
        assert key in message


NEAREST = {
    "sever.lr": "server.lr",
    "client.lrr": "client.lr",
    "client.batchsize": "client.batch_size",
    "clients_per_rounds": "clients_per_round",
    "client.step": "client.steps",
    "eval.evry": "eval.every",
    "data.client": "data.clients",
}


@pytest.mark.parametrize("key", NEAREST)
def test_an_unknown_key_is_answered_with_the_nearest(key: str) -> None:
    message = problem("fedavg", {key: 1})
    assert repr(key) in message
    assert f"did you mean '{NEAREST[key]}'?" in message


def test_a_key_that_is_like_no_other_is_answered_with_where_to_look() -> None:
    assert "--show-config" in problem("fedavg", {"zzz": 1})


NAMES = [
    ("fedyogy", {}, "fedyogi"),
    ("fedopt", {"server.optimizer": "adamm"}, "adam"),
    ("fedavg", {"variant": "asrun"}, "as_run"),
    ("fedavg", {"client.schedule": "stair"}, "staircase"),
    ("fedavg", {"model.activations": "as_ran"}, "as_run"),
    ("fedavg", {"loss.reduction": "summ"}, "sum"),
]


@pytest.mark.parametrize(("algorithm", "changes", "nearest"), NAMES)
def test_an_unknown_name_is_answered_with_the_nearest(
    algorithm: str, changes: dict[str, Any], nearest: str
) -> None:
    assert f"did you mean '{nearest}'?" in problem(algorithm, changes)


@pytest.mark.parametrize("key", ["client.lr", "server.lr", "server.tau"])
@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, -math.inf, "fast", "", [0.1]], ids=repr)
def test_a_rate_must_be_positive_and_finite(key: str, value: Any) -> None:
    assert key in problem("fedyogi", {key: value})


def test_a_tau_too_large_to_square_is_refused() -> None:
    assert "server." in problem("fedyogi", {"server.tau": 1e200})


NUMBERS: list[tuple[str, Any]] = [
    ("rounds", 0),
    ("rounds", 2.5),
    ("seed", -1),
    ("seed", 2**32),
    ("clients_per_round", 0),
    ("client.batch_size", 0),
    ("client.epochs", 0),
    ("client.steps", 0),
    ("eval.every", 0),
    ("eval.sample", -1),
    ("checkpoint.every", 0),
    ("checkpoint.keep", 0),
    ("patience", 0),
    ("server.beta1", 1.0),
    ("server.beta2", -0.1),
    ("server.initial_accumulator", -1.0),
    ("client.warmup", -1),
    ("client.drop_last", "perhaps"),
    ("weighting", "size"),
    ("sampling", "random"),
    ("data.clients", 1.5),
    ("data.clients", "all"),
]


@pytest.mark.parametrize(("key", "value"), NUMBERS)
def test_a_value_out_of_its_range_is_refused_by_name(key: str, value: Any) -> None:
    message = problem("fedyogi", {key: value})
    assert key in message
    assert str(value) in message


@pytest.mark.parametrize("key", ["rounds", "client.lr", "client.batch_size", "seed"])
def test_true_is_not_a_number(key: str) -> None:
    assert key in problem("fedavg", {key: True})


NOT_SELECTED = [
    ("fedavg", "server.tau", 0.1),
    ("fedavg", "server.momentum", 0.9),
    ("fedyogi", "server.momentum", 0.9),
    ("fedadagrad", "server.beta2", 0.9),
    ("fedavg", "client.beta1", 0.9),
    ("fedavg", "client.option", "II"),
    ("fedavg", "client.mu", 0.1),
    ("scaffold", "client.mu", 0.1),
    ("fedavg", "client.decay", 0.1),
    ("fedavg", "server.decay_rounds", 10),
    ("fedavg", "server.factor", 0.5),
]


@pytest.mark.parametrize(("algorithm", "key", "value"), NOT_SELECTED)
def test_an_option_of_what_is_not_selected_is_refused(algorithm: str, key: str, value: Any) -> None:
    message = problem(algorithm, {key: value})
    assert repr(key) in message
    assert algorithm in message
    assert "would be ignored" in message


def test_an_option_is_accepted_once_its_owner_is_selected() -> None:
    config = resolved("fedavg", client__schedule="staircase", client__decay=0.5, client__decay_rounds=7)
    assert (config["client.decay"], config["client.decay_rounds"]) == (0.5, 7)
    assert "decay" not in str([key for key in config if key.startswith("server.")])
    assert resolved("fedprox", client__mu=0.3)["client.mu"] == 0.3


def test_an_optimizer_that_the_algorithm_does_not_take_is_refused_with_the_one_that_does() -> None:
    message = problem("fedavg", {"server.optimizer": "adam"})
    assert "fedavg does not take server.optimizer=adam" in message
    assert "--algorithm fedopt" in message


def test_steps_replace_epochs_and_both_together_are_refused() -> None:
    config = resolved("fedavg", client__steps=5)
    assert config["client.steps"] == 5
    assert "client.epochs" not in config
    assert "exclude each other" in problem("fedavg", {"client.steps": 5, "client.epochs": 1})


@pytest.mark.parametrize("task", ROUNDS)
def test_weighting_by_tokens_is_refused_where_there_are_none(task: str) -> None:
    message = problem("fedavg", {"weighting": "tokens"}, task)
    assert "weighting=tokens" in message
    assert "examples, uniform, processed" in message


@pytest.mark.parametrize("key", ["task", "algorithm", "init"])
def test_what_the_command_chooses_is_no_setting(key: str) -> None:
    assert repr(key) in problem("fedavg", {key: "fedadam"})


# -- writing down and reading back

VARIED = [
    ("fedavg", {}),
    ("scaffold", {"client.option": "I", "client.steps": 3}),
    ("fedyogi", {"variant": "as_run", "server.tau": 1e-5, "weighting": "uniform"}),
    ("fedopt", {"client.optimizer": "adam", "server.optimizer": "adabound", "client.schedule": "plateau"}),
    ("lookahead", {"client.state": "average"}),
    ("centralized", {"client.schedule": "staircase", "seed": 7}),
]


@pytest.mark.parametrize("task", ROUNDS)
@pytest.mark.parametrize(("algorithm", "changes"), VARIED)
def test_what_config_toml_holds_is_the_configuration(
    task: str, algorithm: str, changes: dict[str, Any]
) -> None:
    config = resolve(TASKS[task], algorithm, changes)
    again = from_document(tomllib.loads(config.toml()))
    assert again == config
    assert again.short_hash() == config.short_hash()


@given(
    client_lr=st.floats(min_value=1e-300, max_value=3e38),
    tau=st.floats(min_value=1e-150, max_value=1e19),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_no_digit_is_lost_in_config_toml(client_lr: float, tau: float, seed: int) -> None:
    config = resolve(CR, "fedadam", {"client.lr": client_lr, "server.tau": tau, "seed": seed})
    again = from_document(tomllib.loads(config.toml()))
    assert (again.client.lr, again.server.tau, again.seed) == (client_lr, tau, seed)
    assert again == config


@pytest.mark.parametrize(
    "text", ["", "rounds = ", "rounds = 3", "\x00", "task = 'emnist_cr'\nunknown = 1", '[client]\nlr = "x"']
)
def test_damaged_config_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(RunDirectoryError, match=r"config\.toml is damaged \(.*\)[^\n]*$") as error:
        read_config(file)
    assert error.value.path == tmp_path


def test_the_short_hash_does_not_depend_on_rounds() -> None:
    hashes = {resolve(CR, "fedavg", {"rounds": rounds}).short_hash() for rounds in (1, 2, 1500)}
    assert len(hashes) == 1


OTHER_VALUES = {
    "task": "other",
    "algorithm": "other",
    "weighting": "uniform",
    "sampling": "as_run",
    "variant": "as_run",
    "init": "sha256:0",
    "buffers": "freeze",
    "eval.final": "full",
    "client.optimizer": "sgd",
    "server.optimizer": "sgd",
    "client.schedule": "constant",
    "server.schedule": "constant",
    "loss.reduction": "sum",
    "data.source": "elsewhere",
    "model.activations": "as_printed",
}


def other(key: str, value: Any) -> Any:
    """Another valid value for a key."""
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2 if value else 0.5


def test_the_short_hash_depends_on_everything_else() -> None:
    changes = {"client.optimizer": "adam", "server.optimizer": "adabound"}
    changes |= {"client.schedule": "staircase", "server.schedule": "plateau"}
    config = resolve(CR, "fedopt", changes)
    flat = flatten(config.document())
    hashes = {config.short_hash()}
    keys = [key for key in flat if key != "rounds"]
    for key in keys:
        document = config.document()
        table, _, name = key.rpartition(".")
        (document[table] if table else document)[name] = other(key, flat[key])
        hashes.add(type(config).model_validate(document).short_hash())
    assert len(keys) > 40
    assert len(hashes) == 1 + len(keys)


def test_the_same_configuration_written_in_another_way_is_the_same_run() -> None:
    one = resolve(CR, "fedadam", {"server.lr": 1, "client.lr": 0.5, "seed": 3})
    two = resolve(CR, "fedadam", {"seed": 3, "client.lr": 0.5, "server.lr": 1.0})
    assert one.short_hash() == two.short_hash()


# -- key=value

PARSED: dict[str, tuple[str, Any]] = {
    "client.lr=0.1": ("client.lr", 0.1),
    "client.lr=1e-3": ("client.lr", 1e-3),
    "rounds=10": ("rounds", 10),
    " rounds = 10 ": ("rounds", 10),
    "client.drop_last=true": ("client.drop_last", True),
    "variant=as_run": ("variant", "as_run"),
    'variant="as_run"': ("variant", "as_run"),
    "client.option=I": ("client.option", "I"),
    "client.lr=": ("client.lr", ""),
    "data.source=a=b": ("data.source", "a=b"),
}


@pytest.mark.parametrize("text", PARSED)
def test_settings_are_written_as_in_toml_and_bare_words_are_strings(text: str) -> None:
    key, value = PARSED[text]
    assert parse_settings([text]) == {key: value}


@pytest.mark.parametrize(("text", "value"), [("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf)])
def test_numbers_that_are_none_arrive_as_such_and_are_refused_later(text: str, value: float) -> None:
    parsed = parse_settings([f"client.lr={text}"])
    assert str(parsed["client.lr"]) == str(value)
    assert "client.lr" in problem("fedavg", parsed)


def test_the_last_of_two_settings_counts() -> None:
    assert parse_settings(["seed=1", "seed=2"]) == {"seed": 2}


@pytest.mark.parametrize("text", ["client.lr", "", "=0.1", " =0.1"])
def test_a_setting_without_key_or_value_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"is not of the form key=value, for example client\.lr=0\.1"):
        parse_settings([text])
