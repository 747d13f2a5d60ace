"""A second implementation of federated optimization, in plain NumPy, to check the results of the package.

It was written from the paper (Reddi et al., ICLR 2021) and does not use the package.
Two problems: `digits` (a small network on handwritten digits, one client per writer) and `tags` (logistic
regression on Stack Overflow questions, one client per user). Both read the public HDF5 files directly.
A model is one table of numbers. A client uses only some rows of it: its gradient is zero in all other rows.
For `digits` the whole network is one row. For `tags` there is one row per word, and the last row is the bias.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Rng = np.random.Generator
Problem: TypeAlias = "Digits | Tags"
ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
CLIENTS_PER_ROUND = 10
PIXELS, HIDDEN, CLASSES = 784, 32, 10
WORDS, TAGS, LIMIT = 10_000, 500, 1_000  # a client has at most its first 1,000 questions
BLOCK = 32_768  # numbers that the server updates at a time, so that they stay in the processor's cache


# ---- data ----
class Client(NamedTuple):
    """The examples of one client, and the rows of the model that they use."""

    rows: npt.NDArray[np.int64]
    inputs: Array
    targets: npt.NDArray[Any]


def read_digits(path: Path) -> list[Client]:
    """Read one client per writer, in the order of their ids. The files have a white background: invert it."""
    clients = []
    with h5py.File(path, "r") as file:
        for _, group in sorted(file["examples"].items()):
            inputs = (1 - group["pixels"][:].astype(np.float32)).reshape(-1, PIXELS)
            clients.append(Client(np.zeros(1, np.int64), inputs, group["label"][:].astype(np.int64)))
    return clients


def read_tags(files: Path, split: str, limit: int | None) -> list[Client]:
    """Read one client per user, in the order of their ids, with its first `limit` questions."""
    lines = (files / "stackoverflow.word_count").read_bytes().splitlines()
    words = {line.split()[0]: number for number, line in enumerate(lines[:WORDS])}
    counts: dict[str, int] = json.loads((files / "stackoverflow.tag_count").read_text(encoding="utf-8"))
    frequent = sorted(counts, key=lambda tag: -counts[tag])[:TAGS]  # the sort is stable
    tags = {tag.encode(): number for number, tag in enumerate(frequent)}
    clients = []
    with h5py.File(files / f"stackoverflow_{split}.h5", "r") as file:
        for _, group in sorted(file["examples"].items()):
            texts, titles, labels = (group[field][:limit] for field in ("tokens", "title", "tags"))
            sentences = [(text + b" " + title).split() for text, title in zip(texts, titles, strict=True)]
            used = sorted({words[word] for sentence in sentences for word in sentence if word in words})
            inputs = np.zeros((len(sentences), len(used) + 1), np.float32)
            inputs[:, -1] = 1  # for the bias
            targets = np.zeros((len(sentences), TAGS), np.float32)
            for example, (sentence, label) in enumerate(zip(sentences, labels, strict=True)):
                # Unknown words count in the mean and are then dropped: the sum of a bag is at most 1.
                columns = np.searchsorted(used, [words[word] for word in sentence if word in words])
                np.add.at(inputs[example], columns, 1 / max(len(sentence), 1))
                targets[example, [tags[tag] for tag in label.split(b"|") if tag in tags]] = 1
            clients.append(Client(np.array([*used, WORDS], np.int64), inputs, targets))
    return clients


# ---- models ----
class Digits:
    """A network 784-32-10 with ReLU. The loss is softmax cross-entropy, mean over the batch."""

    def __init__(self, files: Path) -> None:
        self.batch = 20
        self.clients = read_digits(files / "fed_emnist_digitsonly_train.h5")
        test = read_digits(files / "fed_emnist_digitsonly_test.h5")
        self.inputs = np.concatenate([writer.inputs for writer in test])
        self.targets = np.concatenate([writer.targets for writer in test])

    def start(self, rng: Rng) -> Array:
        """Draw weights and biases uniformly in +-1/sqrt(inputs of the layer), as torch.nn.Linear does."""
        first = rng.uniform(-1, 1, PIXELS * HIDDEN + HIDDEN) / math.sqrt(PIXELS)
        second = rng.uniform(-1, 1, HIDDEN * CLASSES + CLASSES) / math.sqrt(HIDDEN)
        return np.concatenate([first, second]).astype(np.float32)[None, :]

    @staticmethod
    def layers(x: Array) -> tuple[Array, Array, Array, Array]:
        """Give the weights and biases of both layers."""
        w1, b1, w2, b2 = np.split(x[0], np.cumsum([PIXELS * HIDDEN, HIDDEN, HIDDEN * CLASSES]))
        return w1.reshape(PIXELS, HIDDEN), b1, w2.reshape(HIDDEN, CLASSES), b2

    def gradient(self, x: Array, inputs: Array, targets: npt.NDArray[Any]) -> Array:
        """Give the gradient of the loss of one batch."""
        w1, b1, w2, b2 = self.layers(x)
        hidden = np.maximum(inputs @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        error = np.exp(logits - logits.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(targets)), targets] -= 1
        error /= len(targets)
        below = (error @ w2.T) * (hidden > 0)
        parts = (inputs.T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts])[None, :]

    def score(self, x: Array) -> float:
        """Give the accuracy on all test digits."""
        w1, b1, w2, b2 = self.layers(x)
        logits = np.maximum(self.inputs @ w1 + b1, 0) @ w2 + b2
        return float((logits.argmax(axis=1) == self.targets).mean())


class Tags:
    """Logistic regression. The loss is binary cross-entropy, mean over the 500 tags, sum over the batch."""

    def __init__(self, files: Path) -> None:
        self.batch = 100
        self.clients = read_tags(files, "train", LIMIT)
        self.test = read_tags(files, "test", None)

    def start(self, rng: Rng) -> Array:
        """Draw Glorot's uniform weights, the default of Keras; the bias is zero."""
        x = np.zeros((WORDS + 1, TAGS), np.float32)
        x[:WORDS] = rng.uniform(-1, 1, (WORDS, TAGS)) * math.sqrt(6 / (WORDS + TAGS))
        return x

    def gradient(self, x: Array, inputs: Array, targets: npt.NDArray[Any]) -> Array:
        """Give the gradient of the loss of one batch; `x` holds only the rows of the client."""
        error: Array = (1 / (1 + np.exp(-(inputs @ x))) - targets) / TAGS
        return inputs.T @ error

    def score(self, x: Array) -> float:
        """Give recall at 5 on all test questions."""
        # All hits over all true tags (as the authors ran it), not a mean of the recalls of single questions.
        hits, true = 0.0, 0.0
        for user in self.test:
            best = np.argpartition(user.inputs @ x[user.rows], -5, axis=1)[:, -5:]
            hits += float(np.take_along_axis(user.targets, best, axis=1).sum())
            true += float(user.targets.sum())
        return hits / true


# ---- clients ----
def local_sgd(problem: Problem, client: Client, x: Array, lr: float, rng: Rng, shift: Any = 0) -> Array:
    """Train one epoch from `x`, the rows of the client; add `shift` to each gradient. Give the change."""
    y = x.copy()
    order = rng.permutation(len(client.inputs))
    for first in range(0, len(order), problem.batch):
        batch = order[first : first + problem.batch]
        y -= lr * (problem.gradient(y, client.inputs[batch], client.targets[batch]) + shift)
    return y - x


def mean_change(problem: Problem, x: Array, chosen: list[int], lr: float, rng: Rng) -> Array:
    """Train the chosen clients; give the mean of their changes, weighted by numbers of examples."""
    total = sum(len(problem.clients[number].inputs) for number in chosen)
    delta = np.zeros_like(x)
    for client in (problem.clients[number] for number in chosen):
        change = local_sgd(problem, client, x[client.rows], lr, rng)
        delta[client.rows] += (len(client.inputs) / total) * change
    return delta


class Scaffold:
    """The clients of SCAFFOLD, option II. The control variate c_i is c until client i first takes part."""

    def __init__(self, x: Array) -> None:
        self.c = np.zeros_like(x)
        self.own: dict[int, Array] = {}  # c_i

    def mean_change(self, problem: Problem, x: Array, chosen: list[int], lr: float, rng: Rng) -> Array:
        """Train the chosen clients; update c and c_i; give the same mean as the function of this name."""
        total = sum(len(problem.clients[number].inputs) for number in chosen)
        delta_x, delta_c = np.zeros_like(x), np.zeros_like(x)
        for number in chosen:
            client = problem.clients[number]
            weight, steps = len(client.inputs) / total, math.ceil(len(client.inputs) / problem.batch)
            old = self.own.get(number, self.c)
            change = local_sgd(problem, client, x, lr, rng, self.c - old)
            new = old - self.c - change / (steps * lr)
            delta_x += weight * change
            delta_c += weight * (new - old)
            self.own[number] = new
        self.c = self.c + len(chosen) / len(problem.clients) * delta_c
        return delta_x


# ---- servers ----
class Server:
    """The server's update. FedAdagrad, FedAdam and FedYogi are as printed in Algorithm 2."""

    def __init__(self, algorithm: str, lr: float, tau: float, x: Array) -> None:
        self.algorithm, self.lr, self.tau = algorithm, lr, tau
        self.m = np.zeros(x.size, np.float32)
        self.v = np.full(x.size, tau**2, np.float32)

    def step(self, x: Array, delta: Array) -> None:
        """Update the model in place."""
        beta1, beta2 = (0.0, 0.0) if self.algorithm == "fedadagrad" else (0.9, 0.99)
        for first in range(0, x.size, BLOCK):
            part = slice(first, first + BLOCK)
            block, d, m, v = x.reshape(-1)[part], delta.reshape(-1)[part], self.m[part], self.v[part]
            if self.algorithm not in ADAPTIVE:
                m[:] = (0.9 if self.algorithm == "fedavgm" else 0.0) * m + d
                block += self.lr * m
            else:
                m[:] = beta1 * m + (1 - beta1) * d
                square = d * d
                if self.algorithm == "fedadagrad":
                    v += square
                elif self.algorithm == "fedyogi":
                    v -= (1 - beta2) * square * np.sign(v - square)
                else:
                    v[:] = beta2 * v + (1 - beta2) * square
                block += self.lr * m / (np.sqrt(v) + self.tau)


# ---- runs and the command line ----
def run(problem: Problem, settings: dict[str, Any], seed: int) -> list[tuple[int, float]]:
    """Train with one seed; give pairs of round and score. The score is NaN if the model is not finite."""
    start, rng = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    x, rounds = problem.start(start), settings["rounds"]
    server = Server(settings["algorithm"], settings["server_lr"], settings["tau"] or 0.0, x)
    train = Scaffold(x).mean_change if settings["algorithm"] == "scaffold" else mean_change
    curve = []
    for number in range(1, rounds + 1):
        lr = settings["client_lr"] * 0.1 ** ((number - 1) // (settings["decay_rounds"] or rounds))
        chosen = rng.choice(len(problem.clients), CLIENTS_PER_ROUND, replace=False).tolist()
        server.step(x, train(problem, x, chosen, lr, rng))
        if (rounds - number) % 25 == 0 if number > rounds - 100 else number % 100 == 0:
            curve.append((number, problem.score(x) if np.isfinite(x).all() else math.nan))
    return curve


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Print one JSON object per seed.")
    parser.add_argument("problem", choices=("digits", "tags"))
    parser.add_argument("--files", type=Path, required=True, help="directory of the HDF5 files")
    parser.add_argument("--algorithm", choices=("fedavg", "fedavgm", *ADAPTIVE, "scaffold"), required=True)
    parser.add_argument("--client-lr", type=float, required=True)
    parser.add_argument("--server-lr", type=float, required=True)
    parser.add_argument("--tau", type=float, default=1e-3, help="only the adaptive algorithms use it")
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--decay-rounds", type=int, help="multiply the client rate by 0.1 every N rounds")
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default="0,1,2")
    settings = vars(parser.parse_args())
    if settings["problem"] == "tags" and settings["algorithm"] == "scaffold":
        parser.error("scaffold works with digits only: for tags a client trains some rows of the model")
    files, seeds = settings.pop("files"), settings.pop("seeds")
    try:
        problem: Problem = Digits(files) if settings["problem"] == "digits" else Tags(files)
    except FileNotFoundError as error:
        parser.error(f"a file is missing ({error}); --files names the directory of the downloaded files")
    np.seterr(over="ignore", invalid="ignore")  # a run may diverge
    for seed in seeds:
        curve = run(problem, settings, seed)
        late = [score for number, score in curve if number > settings["rounds"] - 100]
        mean = sum(late) / len(late)
        result = {"seed": seed, "mean": mean, "last": late[-1], "curve": curve}
        print(
            json.dumps({name: None if value != value else value for name, value in result.items()}),
            flush=True,
        )


if __name__ == "__main__":
    main()
