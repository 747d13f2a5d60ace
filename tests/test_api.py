"""`fedopt.run`, `fedopt.own_task` and `fedopt.load`: a user's own module, loss, clients and algorithm."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import fedopt
from fedopt import algorithms
from fedopt.data.importing.datasets import ImportOptions, table_columns
from fedopt.data.importing.importer import import_dataset
from fedopt.engine.loop import Step
from fedopt.rng import generator
from fedopt.runs.execute import Stop
from fedopt.tasks import Task

# Six clients with four numbers an example and three classes; small enough to follow by hand.
FEATURES, CLASSES = 4, 3
SETTINGS = {"clients_per_round": 3, "client.batch_size": 5, "eval.every": 1}


def examples(name: str, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = generator("tests", "api", name)
    labels = rng.integers(0, CLASSES, n)
    points = rng.normal(size=(n, FEATURES)) + 2 * np.eye(CLASSES, FEATURES)[labels]
    return points.astype(np.float32), labels


IDS = [f"client{number}" for number in range(6)]
CLIENTS = {name: examples(name) for name in IDS}
TEST = examples("test", 60)


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def task_of(model: nn.Module | Callable[[], nn.Module] = linear, **changes: Any) -> Task:
    return fedopt.own_task(
        **{"model": model, "loss": F.cross_entropy, "clients": CLIENTS, "test": TEST, **changes}
    )


def train(task: Task, rounds: int = 2, **options: Any) -> fedopt.RunResult:
    config = {**SETTINGS, **options.pop("config", {})}
    return fedopt.run(task, rounds=rounds, config=config, **options)


def refused(action: Callable[[], Any], *words: str) -> None:
    """The action is refused as the user's mistake, in one line that holds the words."""
    with pytest.raises(fedopt.UserError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


# -- models, losses and clients in every form


def test_a_run_equals_federated_averaging_by_hand() -> None:
    """Two rounds in which all clients take one full-batch step: the mean of x - eta_l g, weighted by n_i."""
    clients = {"a": examples("a", 3), "b": examples("b", 9)}
    model = linear()
    config = {"clients_per_round": 2, "client.batch_size": 9, "client.lr": 0.5}
    result = train(task_of(model, clients=clients), config=config)

    for _ in range(2):
        steps = []
        for points, labels in clients.values():
            model.zero_grad()
            F.cross_entropy(model(torch.from_numpy(points)), torch.from_numpy(labels)).backward()
            steps.append([0.5 * p.grad for p in model.parameters()])
        with torch.no_grad():
            for p, step_a, step_b in zip(model.parameters(), *steps, strict=True):
                p -= (3 * step_a + 9 * step_b) / 12
    by_hand = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, by_hand)


def test_an_instance_is_trained_as_a_copy() -> None:
    model = linear()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = train(task_of(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(result.x, torch.cat([v.reshape(-1) for v in before.values()]))


def test_an_instance_and_a_builder_of_it_train_alike() -> None:
    model = linear()

    def build() -> nn.Module:
        copy = linear()
        copy.load_state_dict(model.state_dict())
        return copy

    assert train(task_of(model)).x_sha256 == train(task_of(build)).x_sha256


def test_a_builder_is_initialised_by_the_runs_seed_and_leaves_the_users_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, again, other = (train(task_of(linear), seed=seed).x_sha256 for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert first == again != other


def test_a_class_is_a_builder_and_its_keywords_are_its_own() -> None:
    class Net(nn.Sequential):
        def __init__(self, *, width: int = 5, activation: type[nn.Module] = nn.Tanh) -> None:
            super().__init__(nn.Linear(FEATURES, width), activation(), nn.Linear(width, CLASSES))

    assert train(task_of(Net)).params == 4 * 5 + 5 + 5 * 3 + 3
    assert train(task_of(partial(Net, width=2))).params == 4 * 2 + 2 + 2 * 3 + 3
    refused(lambda: train(task_of(Net), config={"model.width": 2}), "model.width")


def per_example(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of each example": per_example,
    "partial": partial(F.cross_entropy, reduction="none"),
    "module": nn.CrossEntropyLoss(),
    "module of each example": nn.CrossEntropyLoss(reduction="none"),
    "lambda": lambda outputs, targets: -outputs.log_softmax(1).gather(1, targets[:, None]).mean(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_may_be_the_mean_or_that_of_each_example(loss: str) -> None:
    expected, found = train(task_of()), train(task_of(loss=LOSSES[loss]))
    torch.testing.assert_close(found.x, expected.x)
    assert found.train_loss == pytest.approx(expected.train_loss, rel=1e-5)


def test_clients_as_a_mapping_and_as_a_function_train_alike() -> None:
    mapping, function = task_of(), task_of(clients=examples, client_ids=IDS)
    assert train(mapping).x_sha256 == train(function).x_sha256


def test_a_function_is_asked_only_for_the_clients_of_the_round() -> None:
    asked: list[str] = []

    def read(name: str) -> tuple[np.ndarray, np.ndarray]:
        asked.append(name)
        return examples(name)

    train(task_of(clients=read, client_ids=[f"client{n}" for n in range(1000)]), rounds=2)
    assert len(asked) == 2 * 3


def test_tensors_and_lists_are_arrays_too() -> None:
    tensors = {name: tuple(torch.from_numpy(a) for a in arrays) for name, arrays in CLIENTS.items()}
    assert train(task_of(clients=tensors)).x_sha256 == train(task_of()).x_sha256


def test_a_metric_of_your_own_and_a_test_set_by_client() -> None:
    """The metric is the mean of the second class's probability, over the examples of both clients."""

    def second(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.softmax(1)[:, 1], torch.ones(len(targets))

    model = linear()
    task = task_of(model, test={"a": examples("a", 10), "b": examples("b", 30)}, metrics={"second": second})
    result = train(task)
    with torch.no_grad():
        points = np.concatenate([examples("a", 10)[0], examples("b", 30)[0]])
        by_hand = model(torch.from_numpy(points)).softmax(1)[:, 1].mean().item()
    assert result.metric == "second"
    assert result.test[0]["second"] == pytest.approx(by_hand, rel=1e-5)


BAD_TASKS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no clients": ({"clients": {}}, ("no clients",)),
    "an empty client": ({"clients": {**CLIENTS, "late": examples("late", 0)}}, ("'late'", "no examples")),
    "a client without arrays": ({"clients": {**CLIENTS, "late": ()}}, ("'late'", "no examples")),
    "arrays of different lengths": (
        {"clients": {"odd": (TEST[0][:4], TEST[1][:3])}},
        ("'odd'", "different lengths", "3", "4"),
    ),
    "a function without ids": ({"clients": examples}, ("client_ids",)),
    "a function with no ids": ({"clients": examples, "client_ids": []}, ("no clients", "client_ids")),
    "an empty test set": ({"test": examples("test", 0)}, ("no examples",)),
    "inputs without targets": ({"clients": {"a": TEST[0], "b": TEST[0]}}, ("'a'", "targets")),
    "three arrays": ({"clients": {"a": (*TEST, TEST[1])}}, ("'a'", "targets")),
}


@pytest.mark.parametrize("case", BAD_TASKS)
def test_a_federation_that_cannot_be_is_refused_before_the_first_round(case: str) -> None:
    changes, words = BAD_TASKS[case]
    refused(lambda: train(task_of(**changes), config={"clients_per_round": 1}), *words)


def test_an_empty_client_of_a_function_is_named_when_it_is_met() -> None:
    task = task_of(clients=lambda name: examples(name, 0 if name == "client3" else 5), client_ids=IDS)
    refused(lambda: train(task, config={"clients_per_round": 6}), "'client3'", "no examples")


def test_inputs_of_double_precision_are_taken() -> None:
    """NumPy's numbers are float64 unless one says otherwise, and fedopt trains float32."""
    doubles = {name: (points.astype(np.float64), labels) for name, (points, labels) in CLIENTS.items()}
    task = task_of(clients=doubles, test=(TEST[0].astype(np.float64), TEST[1]))
    assert train(task).x_sha256 == train(task_of()).x_sha256


def test_settings_are_checked_as_on_the_command_line() -> None:
    task = task_of()
    refused(lambda: train(task, algorithm="fedyogy"), "fedyogy", "did you mean 'fedyogi'")
    refused(lambda: train(task, rounds=0), "rounds", "got 0")
    refused(lambda: train(task, config={"client.lr": float("nan")}), "client.lr", "nan")
    refused(lambda: train(task, config={"clients_per_round": 7}), "clients_per_round", "7", "6 clients")
    refused(lambda: train(task, config={"weighting": "tokens"}), "weighting=tokens", "examples")
    refused(lambda: train(task, executor="threads"), "executor", "processes, serial")
    refused(lambda: train(task, workers=0), "workers", "at least 1")
    refused(lambda: fedopt.run("emnist"), "unknown task 'emnist'", "emnist_")


# -- results, callbacks, run directories


def test_the_result_holds_what_design_asks_for() -> None:
    result = train(task_of(), algorithm="fedyogi", rounds=3, seed=5)
    summary = result.summary()
    assert set(summary) == set(
        "task algorithm rounds seed train_loss metric value params x_sha256 seconds data".split()
    )
    assert json.loads(json.dumps(summary)) == summary
    assert {key: summary[key] for key in ("task", "algorithm", "rounds", "seed", "metric", "params")} == {
        "task": "own",
        "algorithm": "fedyogi",
        "rounds": 3,
        "seed": 5,
        "metric": "accuracy",
        "params": FEATURES * CLASSES + CLASSES,
    }
    accuracies = [line["accuracy"] for line in result.test]
    assert [line["round"] for line in result.test] == [0, 1, 2, 3]
    assert summary["value"] == pytest.approx(sum(accuracies[1:]) / 3)  # round 0 is before training
    losses = [line["loss"] for line in result.train]
    assert summary["train_loss"] == pytest.approx(sum(losses) / 3)


def test_the_callback_sees_the_start_and_every_round() -> None:
    steps: list[tuple[int, bool, bool]] = []
    train(
        task_of(),
        rounds=4,
        config={"eval.every": 2, "eval.last_every": 100},
        callback=lambda step: steps.append(
            (step.position.round, step.report is not None, step.evaluation is not None)
        ),
    )
    assert steps == [(0, False, True), (1, True, False), (2, True, True), (3, True, False), (4, True, True)]


def test_a_run_in_a_directory_resumes_extends_and_loads(tmp_path: Path) -> None:
    task, out, rounds = task_of(), tmp_path / "run", []

    def note(step: Any) -> None:
        rounds.append(step.position.round)

    whole = train(task, rounds=5, algorithm="fedadam")
    first = train(task, rounds=3, algorithm="fedadam", out=out, callback=note)
    again = train(task, rounds=3, algorithm="fedadam", out=out, callback=note)
    longer = train(task, rounds=5, algorithm="fedadam", out=str(out), callback=note)
    assert rounds == [0, 1, 2, 3, 4, 5]  # nothing was run twice
    assert first.x_sha256 == again.x_sha256
    assert longer.x_sha256 == whole.x_sha256
    assert first.summary()["run"] == str(out)
    assert [line["round"] for line in longer.train] == [1, 2, 3, 4, 5]

    refused(lambda: train(task, algorithm="fedyogi", out=out), str(out), "another configuration", "--out")

    model = linear()
    loaded = fedopt.load(out, model)
    assert (loaded.round, loaded.config.algorithm) == (5, "fedadam")
    assert torch.equal(loaded.x, longer.x)
    assert loaded.model is model and not model.training
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in model.parameters()]), longer.x)
    assert torch.equal(fedopt.load(out, linear(), round=3).x, first.x)


def test_loading_what_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(task_of(), rounds=3, out=out)
    refused(lambda: fedopt.load(tmp_path / "nowhere"), "nowhere", "no run directory")
    refused(lambda: fedopt.load(out), str(out), "own", "model")
    refused(lambda: fedopt.load(out, linear(), round=2), "no checkpoint of round 2", "it has 3")
    refused(lambda: fedopt.load(out, nn.Linear(FEATURES, 2)), "15 parameters", "10")


def test_a_run_of_a_built_in_task_is_loaded_with_its_model(tmp_path: Path) -> None:
    config = {
        "data.clients": 3,
        "clients_per_round": 1,
        "client.steps": 1,
        "client.batch_size": 4,
        "eval.sample": 20,
    }
    result = fedopt.run("emnist_cr", rounds=1, config=config, out=tmp_path / "run")
    loaded = fedopt.load(tmp_path / "run")
    assert torch.equal(loaded.x, result.x)
    assert loaded.model(torch.rand(2, 28, 28)).shape == (2, 62)
    assert result.params == 1_206_590


# -- buffers, frozen and tied parameters


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))


def test_batch_norm_is_refused_in_one_line() -> None:
    refused(lambda: train(task_of(normalised)), "'1'", "running statistics", "GroupNorm", "buffers='freeze'")


def test_frozen_batch_norm_trains_with_the_statistics_it_came_with() -> None:
    """Then the layer is affine: training equals that of the same network with the layer written out."""
    model = normalised()
    model[1].running_mean.copy_(torch.linspace(-1, 1, 5))
    model[1].running_var.copy_(torch.linspace(0.5, 2, 5))

    class Affine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))

        def forward(self, h: Tensor) -> Tensor:
            mean, variance = torch.linspace(-1, 1, 5), torch.linspace(0.5, 2, 5)
            return (h - mean) / (variance + 1e-5).sqrt() * self.weight + self.bias

    written_out = nn.Sequential(model[0], Affine(), model[2])
    frozen, by_hand = train(task_of(model), rounds=3, buffers="freeze"), train(task_of(written_out), rounds=3)
    torch.testing.assert_close(frozen.x, by_hand.x)
    assert not torch.equal(frozen.x[20 + 5 : 20 + 10], torch.ones(5))  # the layer's weight was trained


def test_frozen_statistics_stay_as_they_are() -> None:
    built: list[nn.Module] = []

    def build() -> nn.Module:
        built.append(normalised())
        return built[-1]

    train(task_of(build), buffers="freeze")
    for model in built:
        statistics = dict(model.named_buffers())
        assert torch.equal(statistics["1.running_mean"], torch.zeros(5))
        assert torch.equal(statistics["1.running_var"], torch.ones(5))
        assert statistics["1.num_batches_tracked"].item() == 0


class Counting(nn.Module):
    """A module that counts its forward passes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        out: Tensor = self.inner(points)
        return out


class Replacing(Counting):
    """The same with a new tensor each time."""

    def forward(self, points: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + 1
        out: Tensor = self.inner(points)
        return out


@pytest.mark.parametrize("policy", ["refuse", "freeze"])
@pytest.mark.parametrize("model", [Counting, Replacing])
def test_a_module_that_writes_a_buffer_is_refused(model: type[nn.Module], policy: str) -> None:
    refused(lambda: train(task_of(model), buffers=policy), "'seen'", "buffer", "parameter")


def test_a_buffer_that_stays_constant_is_allowed() -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(FEATURES, CLASSES)
            self.register_buffer("scale", torch.full((FEATURES,), 2.0))

        def forward(self, points: Tensor) -> Tensor:
            return super().forward(points * self.scale)

    assert train(task_of(Scaled)).params == 15


def test_an_unknown_policy_is_refused() -> None:
    refused(lambda: train(task_of(linear), buffers="frozen"), "'frozen'", "freeze", "refuse")


def test_frozen_parameters_keep_their_bits_and_are_not_in_the_vector() -> None:
    built: list[nn.Module] = []

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES))
        model[0].requires_grad_(False)
        built.append(model)
        return model

    result = train(task_of(build), rounds=3)
    assert result.params == 5 * 3 + 3
    weights = [model[0].weight for model in built]
    assert len(weights) > 1 and all(torch.equal(weight, weights[0]) for weight in weights)


class Tied(nn.Module):
    """One matrix, used as it is and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(FEATURES, CLASSES, bias=False)
        self.up = nn.Linear(CLASSES, FEATURES, bias=False)
        self.again = nn.Linear(FEATURES, CLASSES, bias=False)
        self.again.weight = self.down.weight

    def forward(self, points: Tensor) -> Tensor:
        out: Tensor = self.again(self.up(self.down(points)))
        return out


def test_tied_parameters_train_once_and_stay_tied(tmp_path: Path) -> None:
    """The step of a tied matrix is that of the sum of the gradients of its places."""
    model, clients = Tied(), {"a": examples("a")}
    config = {"clients_per_round": 1, "client.batch_size": 12, "client.lr": 0.1}
    result = train(task_of(model, clients=clients), rounds=1, config=config, out=tmp_path / "run")
    assert result.params == 2 * FEATURES * CLASSES

    F.cross_entropy(model(torch.from_numpy(clients["a"][0])), torch.from_numpy(clients["a"][1])).backward()
    stepped = [p.detach() - 0.1 * p.grad for p in model.parameters()]
    torch.testing.assert_close(result.x, torch.cat([p.reshape(-1) for p in stepped]))

    loaded = fedopt.load(tmp_path / "run", Tied()).model
    assert loaded.again.weight is loaded.down.weight


def test_parameters_that_share_memory_without_being_tied_are_refused() -> None:
    class Shared(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.again.weight = nn.Parameter(self.down.weight.data)

    refused(
        lambda: train(task_of(Shared)), "'down.weight'", "'again.weight'", "share memory", "one Parameter"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_parameters_of_another_precision_are_refused(dtype: torch.dtype) -> None:
    refused(lambda: train(task_of(linear().to(dtype))), "'weight'", str(dtype), "float32")


def test_a_model_with_nothing_to_train_is_refused() -> None:
    refused(
        lambda: train(task_of(linear().requires_grad_(False))), "no trainable parameters", "requires_grad"
    )


# -- starting from given weights


def test_a_run_starts_from_given_weights(tmp_path: Path) -> None:
    model, file = linear(), tmp_path / "weights.safetensors"
    save_file(dict(model.state_dict()), file)
    given = train(task_of(linear), init=file)
    assert given.x_sha256 == train(task_of(model)).x_sha256 != train(task_of(linear)).x_sha256


def test_frozen_weights_of_the_file_are_used_or_refused(tmp_path: Path) -> None:
    """A frozen body from a file and a fresh head to train: the file's body must not be lost in silence."""

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES))
        model[0].requires_grad_(False)
        return model

    pretrained, file = build(), tmp_path / "weights.safetensors"
    save_file(dict(pretrained.state_dict()), file)
    try:
        found = train(task_of(build), init=file)
    except fedopt.UserError as error:
        assert str(file) in str(error) and "0.weight" in str(error)
        return
    assert found.x_sha256 == train(task_of(pretrained)).x_sha256


# -- algorithms of one's own


def sign_step(x: Tensor, delta: Tensor, eta: float, t: int, state: Any) -> tuple[Tensor, Any]:
    return x + eta * delta.sign(), state


def fedsign() -> fedopt.Algorithm:
    return algorithms.fedopt(algorithms.sgd(), fedopt.Optimizer(sign_step))


def test_an_algorithm_of_your_own_is_given_as_it_is_or_as_a_function() -> None:
    """One round of sign descent from zero moves every weight by eta or not at all."""
    model = linear()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    config = {"server.lr": 0.25}
    given = train(task_of(model), rounds=1, algorithm=fedsign(), config=config)
    built = train(task_of(model), rounds=1, algorithm=fedsign, config=config)
    assert set(given.x.abs().tolist()) == {0.25}
    assert torch.equal(given.x, built.x)
    assert (given.algorithm, built.algorithm) == ("own", "fedsign")


def test_an_optimizer_of_your_own_keeps_its_state_across_a_resume(tmp_path: Path) -> None:
    class Sum(NamedTuple):
        total: Tensor

    def update(x: Tensor, delta: Tensor, eta: float, t: int, state: Sum) -> tuple[Tensor, Sum]:
        total = state.total + delta
        return x + eta / (t + 1) * total, Sum(total)

    algorithm = algorithms.fedopt(
        algorithms.sgd(), fedopt.Optimizer(update, lambda x: Sum(torch.zeros_like(x)))
    )
    task = task_of()
    whole = train(task, rounds=4, algorithm=algorithm)
    train(task, rounds=2, algorithm=algorithm, out=tmp_path / "run")
    assert train(task, rounds=4, algorithm=algorithm, out=tmp_path / "run").x_sha256 == whole.x_sha256


class JustX(NamedTuple):
    x: Tensor


def test_a_whole_algorithm_is_three_functions() -> None:
    """FedSGD: clients return their full gradient, the server descends by the mean, sum_i n_i g_i / n."""
    fedsgd = fedopt.Algorithm(
        init=JustX,
        client=lambda work, x: fedopt.ClientResult((work.full_gradient(x),)),
        server=lambda state, mean, round: JustX(state.x - round.eta * mean[0]),
    )
    clients = {"a": examples("a", 3), "b": examples("b", 9)}
    config = {"clients_per_round": 2, "client.batch_size": 9, "server.lr": 0.5}
    model = linear()
    result = train(task_of(model, clients=clients), rounds=1, algorithm=fedsgd, config=config)

    points, labels = (torch.from_numpy(np.concatenate(part)) for part in zip(*clients.values(), strict=True))
    F.cross_entropy(model(points), labels).backward()  # the mean over all examples is that weighted mean
    by_hand = torch.cat([(p - 0.5 * p.grad).detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, by_hand)


def test_an_algorithm_that_never_asks_for_gradients_runs_on() -> None:
    """Clients that return the model's negative: x + eta (-x) with eta = 1/2 halves the model each round."""
    halving = fedopt.Algorithm(
        init=JustX,
        client=lambda work, x: fedopt.ClientResult((-x,)),
        server=lambda state, mean, round: JustX(state.x + round.eta * mean[0]),
    )
    model = linear()
    result = train(task_of(model), rounds=7, algorithm=halving, config={"server.lr": 0.5})
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(result.x, start / 2**7)


def test_what_workers_cannot_import_is_refused_in_one_line() -> None:
    def run(**changes: Any) -> Any:
        options: Mapping[str, Any] = {"algorithm": changes.pop("algorithm", "fedavg")}
        return train(task_of(**changes), executor="processes", workers=1, **options)

    advice = ("top level of a module", "executor='serial'")
    refused(lambda: run(loss=lambda outputs, targets: F.cross_entropy(outputs, targets)), "lambda", *advice)
    refused(lambda: run(algorithm=fedsign()), *advice)


def test_workers_give_the_same_bits_as_this_process() -> None:
    task = task_of()
    serial = train(task, algorithm=fedsign)
    assert train(task, algorithm=fedsign, executor="processes", workers=1).x_sha256 == serial.x_sha256


# -- what an algorithm of one's own may not do


def _sgd_client(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    x_i = x
    for batch in work.batches():
        x_i = x_i - work.round.eta_l * work.gradient(x_i, batch)
    return fedopt.ClientResult((x_i - x,))


def _in_place(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    x_i = x
    for batch in work.batches():
        x_i -= work.round.eta_l * work.gradient(x_i, batch)
    return fedopt.ClientResult((x_i - x,))


def _undeclared(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    (delta,) = _sgd_client(work, x).returns
    return fedopt.ClientResult((delta,), keeps=(delta,))


def _short(work: Any, x: torch.Tensor) -> fedopt.ClientResult:
    return fedopt.ClientResult((_sgd_client(work, x).returns[0][:-1],))


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (_in_place, "in place"),
        (_undeclared, "gave 1 and 1 vectors"),
        (_short, "must be like x"),
        (lambda work, x: x, "not a Tensor"),
    ],
)
def test_a_client_that_breaks_the_contract_is_refused_in_one_line(client: Any, says: str) -> None:
    algorithm = algorithms.fedopt(algorithms.sgd(), algorithms.sgd())._replace(client=client)
    with pytest.raises(fedopt.UserError, match=says):
        train(task_of(), algorithm=algorithm)


class _TwoOfX(NamedTuple):
    x: torch.Tensor


@pytest.mark.parametrize(
    ("optimizer", "says"),
    [
        (
            fedopt.Optimizer(lambda x, delta, eta, t, s: (x + eta * delta, (delta,))),
            "give the optimizer an init",
        ),
        (fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: {"m": x}), "is a dict"),
        (fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: (0.5,)), "is a float"),
        (fedopt.Optimizer(lambda x, delta, eta, t, s: (x, s), lambda x: _TwoOfX(x)), "named 'x'"),
    ],
)
def test_a_server_state_that_a_checkpoint_would_lose_is_refused_in_one_line(
    optimizer: Any, says: str
) -> None:
    with pytest.raises(fedopt.UserError, match=says):
        train(task_of(), algorithm=algorithms.fedopt(algorithms.sgd(), optimizer))


def test_a_table_of_ones_own_is_imported_and_trained_on(tmp_path: Path) -> None:
    rows = ["hospital,age,dose,sick"]
    rng = np.random.default_rng(0)
    for hospital in ("north", "south", "west"):
        for _ in range(20):
            age, dose = rng.normal(size=2)
            rows.append(f"{hospital},{age:.4f},{dose:.4f},{int(age > dose)}")
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    columns = table_columns("own", "hospital", "sick", None, None, 0.2, 0)
    import_dataset("own", [tmp_path / "table.csv"], tmp_path / "store", ImportOptions(columns=columns))
    task = fedopt.own_task(lambda: torch.nn.Linear(2, 2), F.cross_entropy, str(tmp_path / "store"))
    result = fedopt.run(task, rounds=20, config={"client.lr": 0.5})
    assert result.test[-1]["accuracy"] > 0.8 and result.data == str(tmp_path / "store")


# -- data by name


def test_data_by_a_name_that_is_not_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDOPT_DATA", str(tmp_path))
    refused(lambda: fedopt.run("shakespeare", data="shakespeare"), "'shakespeare' is neither", "fedopt data")


def test_a_callback_may_stop_a_run_which_can_be_continued(tmp_path: Path) -> None:
    def stop(step: Step) -> None:
        if step.position.round == 1:
            raise Stop("enough")

    with pytest.raises(Stop, match="enough"):
        train(task_of(), out=tmp_path / "run", callback=stop)
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "pruned"
    assert train(task_of(), out=tmp_path / "run").x_sha256 == train(task_of()).x_sha256
