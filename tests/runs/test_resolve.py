"""Resolved configurations: the paper's settings are the defaults, invalid settings are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedopt.algorithms import ALGORITHMS
from fedopt.errors import ConfigError, UserError
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


def resolved(algorithm: str = "fedavg", task: str = "emnist_cr", **keys: Any) -> dict[str, Any]:
    """The configuration as dotted keys; server__lr=0.1 stands for server.lr."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    return flatten(resolve(TASKS[task], algorithm, dotted).document())


def refused_keys(algorithm: str, changes: dict[str, Any], task: str = "emnist_cr") -> tuple[str, ...]:
    """The keys for which a configuration is refused."""
    with pytest.raises(ConfigError) as error:
        resolve(TASKS[task], algorithm, changes)
    assert "\n" not in str(error.value)
    return error.value.keys


def refusal(algorithm: str, changes: dict[str, Any], task: str = "emnist_cr") -> str:
    """The message with which a configuration is refused."""
    with pytest.raises(UserError) as error:
        resolve(TASKS[task], algorithm, changes)
    return str(error.value)


@pytest.mark.parametrize(("task", "algorithm"), BEST)
def test_default_rates_are_those_of_the_paper(task: str, algorithm: str) -> None:
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
def test_default_moments_are_those_of_the_paper(algorithm: str) -> None:
    config = resolved(algorithm)
    found = {key: value for key, value in config.items() if key in ("server.optimizer", "server.momentum")}
    found |= {key: value for key, value in config.items() if key.startswith("server.beta")}
    assert found == MOMENTS[algorithm]
    assert config["variant"] == "as_printed"
    assert config.get("server.bias_correction", False) is False


@pytest.mark.parametrize("task", ROUNDS)
def test_scaffold_has_the_default_rates_of_fedavg(task: str) -> None:
    fedavg, scaffold = resolved("fedavg", task), resolved("scaffold", task)
    for key in ("client.lr", "server.lr", "rounds", "clients_per_round", "client.batch_size"):
        assert scaffold[key] == fedavg[key]
    assert scaffold["client.option"] == "II"  # the printed algorithm


def test_default_reduction_is_the_one_the_rates_were_tuned_for() -> None:
    assert resolved(task="emnist_cr")["loss.reduction"] == "mean"
    assert resolved(task="emnist_ae")["loss.reduction"] == "sum"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("task", TASKS)
def test_every_algorithm_has_a_configuration_on_every_task(task: str, algorithm: str) -> None:
    config = resolved(algorithm, task)
    assert (config["task"], config["algorithm"]) == (task, algorithm)


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
def test_variant_changes_only_the_documented_server_options(algorithm: str) -> None:
    printed, run = resolved(algorithm), resolved(algorithm, variant="as_run")
    assert printed.keys() == run.keys()
    changed = {key: (printed[key], run[key]) for key in printed if printed[key] != run[key]}
    expected = {"variant": ("as_printed", "as_run"), **CHANGED_BY_AS_RUN[algorithm]}
    assert {
        key: pytest.approx(value) if key != "variant" else value for key, value in expected.items()
    } == changed


def test_variant_does_not_change_the_client_optimizer() -> None:
    both = [
        resolved("fedopt", client__optimizer="adam", variant=variant) for variant in ("as_printed", "as_run")
    ]
    printed, run = ({k: v for k, v in config.items() if k.startswith("client.")} for config in both)
    assert printed == run


def test_settings_override_the_variant() -> None:
    config = resolved(
        "fedyogi", variant="as_run", server__bias_correction=False, server__initial_accumulator=0.5
    )
    assert (config["server.bias_correction"], config["server.initial_accumulator"]) == (False, 0.5)
    assert config["server.first_step"] == 2


@pytest.mark.parametrize("algorithm", ["fedadagrad", "fedadam", "fedyogi"])
def test_default_initial_accumulator_is_tau_squared(algorithm: str) -> None:
    assert resolved(algorithm, server__tau=0.03)["server.initial_accumulator"] == pytest.approx(9e-4)
    assert resolved(algorithm, server__tau=0.03, variant="as_run")["server.initial_accumulator"] == 0
    both = resolved(algorithm, server__tau=0.03, server__initial_accumulator=0.25)
    assert (both["server.tau"], both["server.initial_accumulator"]) == (0.03, 0.25)


def test_initial_accumulator_of_the_client_depends_on_the_clients_tau() -> None:
    config = resolved(
        "fedopt", client__optimizer="yogi", client__tau=0.5, server__optimizer="adam", server__tau=0.1
    )
    assert config["client.initial_accumulator"] == pytest.approx(0.25)
    assert config["server.initial_accumulator"] == pytest.approx(0.01)


def test_all_problems_are_reported_together() -> None:
    changes = {
        "client.lr": -1.0,
        "rounds": 0,
        "server.taux": 1,
        "server.momentum": 0.5,
        "weighting": "tokens",
    }
    assert set(refused_keys("fedyogi", changes)) == changes.keys()
    assert "5 problems" in refusal("fedyogi", changes)


NEAREST = {
    "sever.lr": "server.lr",
    "client.lrr": "client.lr",
    "client.batchsize": "client.batch_size",
    "clients_per_rounds": "clients_per_round",
    "client.step": "client.steps",
    "eval.evry": "eval.every",
    "data.client": "data.clients",
    "clients": "clients_per_round",
    "server.taus": "server.tau",
    "batch_size": "client.batch_size",
    "server.learning_rate": "server.lr",
    "client.eta": "client.lr",
}


@pytest.mark.parametrize("key", NEAREST)
def test_unknown_key_suggests_the_closest_one(key: str) -> None:
    message = refusal("fedavg", {key: 1})
    assert repr(key) in message
    assert f"did you mean '{NEAREST[key]}'?" in message


def test_key_without_a_section_suggests_both_sections() -> None:
    assert "did you mean 'client.lr' or 'server.lr'?" in refusal("fedavg", {"lr": 1})


def test_section_suggests_dotted_keys() -> None:
    assert "such as 'client.lr'" in refusal("fedavg", {"client": {"lr": 0.1}})


def test_unknown_key_without_a_close_match_names_show_config() -> None:
    assert "--show-config" in refusal("fedavg", {"zzz": 1})


NAMES = [
    ("fedyogy", {}, "fedyogi"),
    ("fedopt", {"server.optimizer": "adamm"}, "adam"),
    ("fedavg", {"variant": "asrun"}, "as_run"),
    ("fedavg", {"client.schedule": "stair"}, "staircase"),
    ("fedavg", {"model.activations": "as_ran"}, "as_run"),
    ("fedavg", {"loss.reduction": "summ"}, "sum"),
]


@pytest.mark.parametrize(("algorithm", "changes", "nearest"), NAMES)
def test_unknown_name_suggests_the_closest_one(algorithm: str, changes: dict[str, Any], nearest: str) -> None:
    assert f"did you mean '{nearest}'?" in refusal(algorithm, changes)


@pytest.mark.parametrize("key", ["client.lr", "server.lr", "server.tau"])
@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, -math.inf, "fast", "", [0.1]], ids=repr)
def test_rates_must_be_positive_and_finite(key: str, value: Any) -> None:
    assert refused_keys("fedyogi", {key: value}) == (key,)


def test_tau_too_large_to_square_is_refused() -> None:
    assert "server.tau" in refused_keys("fedyogi", {"server.tau": 1e200})


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
def test_values_out_of_range_are_refused(key: str, value: Any) -> None:
    message = refusal("fedyogi", {key: value})
    assert key in message
    assert str(value) in message


@pytest.mark.parametrize("key", ["rounds", "client.lr", "client.batch_size", "seed"])
def test_booleans_are_not_numbers(key: str) -> None:
    assert refused_keys("fedavg", {key: True}) == (key,)


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
def test_options_of_functions_that_are_not_selected_are_refused(algorithm: str, key: str, value: Any) -> None:
    assert refused_keys(algorithm, {key: value}) == (key,)
    assert "would be ignored" in refusal(algorithm, {key: value})


def test_options_of_selected_functions_are_accepted() -> None:
    config = resolved("fedavg", client__schedule="staircase", client__decay=0.5, client__decay_rounds=7)
    assert (config["client.decay"], config["client.decay_rounds"]) == (0.5, 7)
    assert "decay" not in str([key for key in config if key.startswith("server.")])
    assert resolved("fedprox", client__mu=0.3)["client.mu"] == 0.3


def test_optimizer_that_does_not_fit_the_algorithm_is_refused() -> None:
    assert refused_keys("fedavg", {"server.optimizer": "adam"}) == ("server.optimizer",)


def test_steps_replace_epochs() -> None:
    config = resolved("fedavg", client__steps=5)
    assert config["client.steps"] == 5
    assert "client.epochs" not in config
    assert refused_keys("fedavg", {"client.steps": 5, "client.epochs": 1}) == ("client.steps",)


@pytest.mark.parametrize("task", ROUNDS)
def test_weighting_by_tokens_needs_a_text_task(task: str) -> None:
    assert refused_keys("fedavg", {"weighting": "tokens"}, task) == ("weighting",)


@pytest.mark.parametrize("key", ["task", "algorithm", "init", "data.source", "data.manifest", "vectorised"])
def test_keys_that_follow_from_other_options_are_not_settings(key: str) -> None:
    assert key in refused_keys("fedavg", {key: "fedadam"})


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
def test_settings_are_parsed_as_toml_or_strings(text: str) -> None:
    key, value = PARSED[text]
    assert parse_settings([text]) == {key: value}


@pytest.mark.parametrize(("text", "value"), [("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf)])
def test_nan_and_infinity_are_parsed_and_refused_later(text: str, value: float) -> None:
    parsed = parse_settings([f"client.lr={text}"])
    assert str(parsed["client.lr"]) == str(value)
    assert refused_keys("fedavg", parsed) == ("client.lr",)


def test_the_last_of_two_equal_settings_counts() -> None:
    assert parse_settings(["seed=1", "seed=2"]) == {"seed": 2}


@pytest.mark.parametrize("text", ["client.lr", "", "=0.1", " =0.1"])
def test_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"is not of the form key=value, for example client\.lr=0\.1"):
        parse_settings([text])
