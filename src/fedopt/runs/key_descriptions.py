"""One sentence about every configuration key, for `--show-config` and the documentation.

A test checks that every key has a sentence and that every sentence belongs to a key. A user-defined algorithm
describes its own keys: `def feddyn(*, alpha: Annotated[float, Doc("Weight of the penalty.")] = 0.1)`.
"""

from __future__ import annotations

import tomllib
from inspect import signature
from typing import Any, get_args

import tomli_w

from fedopt.algorithms import ALGORITHMS, AlgorithmChoice, algorithm_name, find_algorithm
from fedopt.runs.config import Config

# Keys of [client] and of [server].
_BOTH_SIDES = {
    "optimizer": "Optimizer that turns updates into steps.",
    "lr": "Base learning rate.",
    "schedule": "Schedule: constant, staircase, exponential, inverse_linear, inverse_sqrt or plateau.",
    "warmup": "Number of first rounds in which the learning rate rises linearly.",
    "momentum": "Share of the previous direction that is kept in each step.",
    "fold_rate": "Whether the learning rate is part of the momentum, as in Keras.",
    "beta1": "Decay of the first moment.",
    "beta2": "Decay of the second moment.",
    "tau": "Degree of adaptivity: the number that is added to the denominator.",
    "initial_accumulator": "Value of the second moment before the first step.",
    "bias_correction": "Whether the learning rate is corrected for moments that start at zero, as in Keras.",
    "first_step": "Step number of the first correction, if bias_correction is true.",
    "final_rate": "Rate per coordinate to which AdaBound converges.",
    "gamma": "Speed at which AdaBound's bounds converge.",
    "decay": "Factor or strength of the schedule's decay.",
    "decay_rounds": "Number of rounds per decay.",
    "factor": "Number by which the plateau schedule multiplies the learning rate.",
    "window": "Number of rounds over which the plateau schedule averages the training loss.",
    "patience": "Number of rounds without improvement after which the plateau schedule reduces the rate.",
    "min_delta": "Smallest decrease of the training loss that the plateau schedule counts as an improvement.",
}

DESCRIPTIONS = {
    "task": "Task: data, model, loss and metrics.",
    "algorithm": "Federated algorithm.",
    "rounds": "Total number of rounds.",
    "seed": "Seed of all random numbers.",
    "clients_per_round": "Number of clients that are sampled in each round.",
    "weighting": "Weight of a client in the mean: examples, uniform, processed (examples) or tokens.",
    "sampling": "How clients are sampled without replacement: uniform, or as_run (by the authors).",
    "variant": "Mathematics of the server: as_printed in the paper, or as_run by its authors.",
    "patience": "Number of consecutive rounds without a finite client after which the run ends as diverged.",
    "buffers": "Treatment of running statistics of batch normalization: refuse, freeze, average, local.",
    "init": 'Initial weights: "seed", or the checksum of the given file.',
    "vectorised": "Clients train many at a time: on this device, or `compiled`; not set for other executors.",
    "client.batch_size": "Number of examples in a batch.",
    "client.epochs": "Passes over a client's data in each round; not set if client.steps is set.",
    "client.steps": "Number of batches per client and round; replaces client.epochs.",
    "client.drop_last": "Whether the last, smaller batch of an epoch is left out.",
    "client.option": "SCAFFOLD's control variates: II from the model difference, I from a full gradient.",
    "client.mu": "Weight of FedProx's proximal term.",
    "client.epsilon": "Number whose square AdaAlter adds to the accumulator in each local step.",
    "client.state": "Whether Lookahead's clients reset their accumulators or the server averages them.",
    "loss.reduction": "Reduction of the loss over a batch: mean or sum.",
    "loss.masked": "Whether padding is left out of the loss.",
    "data.source": "Data: synthetic, the directory of an imported dataset, or own for a user-defined task.",
    "data.manifest": "Checksum of the imported data.",
    "data.clients": "Number of clients of the dataset that are used; 0 means all.",
    "data.alpha": "Standard deviation of the mean weight of generated clients; labels do not depend on it.",
    "data.beta": "Standard deviation of the mean input of a generated client.",
    "data.augment": "Random crops: per_image, or per_batch.",
    "data.limit": "Largest number of training sentences of a client; 0 means all.",
    "data.bag": "How a text becomes a bag of words: as_printed in the paper, or as_run by its authors.",
    "model.classes": "Number of classes.",
    "model.l2": "Weight of the L2 penalty.",
    "model.activations": "Activation functions: as_printed in the paper, or as_run by its authors.",
    "model.vocabulary": "Number of characters or words.",
    "model.width": "Dimension of the embedding.",
    "model.units": "Number of units of a recurrent layer.",
    "model.padding": "Outputs of a recurrent layer at padding: repeat the last one, or zero.",
    "model.hidden": "Number of units of the hidden layer.",
    "model.tags": "Number of tags that are predicted.",
    "eval.every": "Number of rounds between evaluations; the default gives a short run about twenty.",
    "eval.last_every": "Number of rounds between evaluations in the last 100 rounds.",
    "eval.sample": "Number of test examples of an evaluation during training; 0 means all.",
    "eval.final": "Test examples that are used after the last round: sample or full.",
    "checkpoint.every": "Number of rounds between checkpoints.",
    "checkpoint.keep": "Number of newest checkpoints that are kept.",
    "stop.metric": "Metric of early stopping, measured on the test set.",
    "stop.patience": "Number of evaluations (test set) without improvement that end the run; 0 means never.",
    "stop.min_delta": "Smallest improvement of the metric that counts.",
} | {f"{side}.{name}": sentence for side in ("client", "server") for name, sentence in _BOTH_SIDES.items()}


def describe_key(key: str, algorithm: AlgorithmChoice) -> str:
    """One sentence about a key of a run with this algorithm."""
    side, _, name = key.rpartition(".")
    own = _own_options(algorithm) if side == "client" else {}
    if name in own:
        return own[name] or f"Argument {name!r} of {algorithm_name(algorithm)}."
    return DESCRIPTIONS.get(key, f"Option {name!r} of the task.")


def _own_options(algorithm: AlgorithmChoice) -> dict[str, str]:
    """The keys of a user-defined algorithm, with the documentation of their annotations."""
    if isinstance(algorithm, str) and algorithm in ALGORITHMS:
        return {}
    entry = find_algorithm(algorithm)
    return {name: _documentation(p.annotation) for name, p in signature(entry.build).parameters.items()}


def _documentation(annotation: object) -> str:
    texts = [getattr(part, "documentation", None) for part in get_args(annotation)]
    return next((" ".join(text.split()) for text in texts if isinstance(text, str)), "")


def annotated_toml(config: Config, algorithm: AlgorithmChoice) -> str:
    """The configuration as TOML with a comment above every key. Keys without a value are commented out.

    The result can be read back and equals config.toml.
    """
    plain, tables = [], []
    for name, value in config.model_dump().items():
        if not isinstance(value, dict):
            plain.append(_entry(name, name, value, algorithm))
        elif value:
            entries = [_entry(f"{name}.{key}", key, inner, algorithm) for key, inner in value.items()]
            tables.append(f"\n[{name}]\n" + "".join(entries))
    return "".join([*plain, *tables])


def _entry(key: str, name: str, value: Any, algorithm: AlgorithmChoice) -> str:
    line = f"# {name} =\n" if value is None else tomli_w.dumps({name: value})
    assert value is None or tomllib.loads(line) == {name: value}
    return f"# {describe_key(key, algorithm)}\n{line}"
