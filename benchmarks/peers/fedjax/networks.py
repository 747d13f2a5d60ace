"""The networks in JAX. Images have the layout row, column, channel, which is faster on a CPU.

Weights are converted from PyTorch's layout at the start and back at the end.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Params = dict


def from_torch_layout(name: str, a: np.ndarray) -> np.ndarray:
    """(out, in, h, w) -> (h, w, in, out), and (out, in) -> (in, out)."""
    if a.ndim == 4:
        return a.transpose(2, 3, 1, 0)
    if _reads_image(name, a.shape[-1:]):  # channels first in PyTorch, last here
        return a.reshape(len(a), 64, 12, 12).transpose(2, 3, 1, 0).reshape(-1, len(a))
    return a.T if a.ndim == 2 and name not in ("embedding.weight", "kernel") else a


def to_torch_layout(name: str, a: np.ndarray) -> np.ndarray:
    if a.ndim == 4:
        return a.transpose(3, 2, 0, 1)
    if _reads_image(name, a.shape[:1]):
        return a.reshape(12, 12, 64, -1).transpose(3, 2, 0, 1).reshape(a.shape[1], -1)
    return a.T if a.ndim == 2 and name not in ("embedding.weight", "kernel") else a


def _reads_image(name: str, inputs: tuple[int, ...]) -> bool:
    """Return whether the inputs of a dense layer are the 64 channels of the CNN's images."""
    return name == "dense1.weight" and inputs == (64 * 12 * 12,)


def conv(x: jax.Array, w: jax.Array, stride: int = 1, padding: str = "VALID") -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def dense(p: Params, name: str, x: jax.Array) -> jax.Array:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def dropout(x: jax.Array, rate: float, rng: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(rng, 1 - rate, x.shape), x / (1 - rate), 0)


def max_pool(x: jax.Array, size: int, stride: int, padding: tuple) -> jax.Array:
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), ((0, 0), padding, padding, (0, 0))
    )


def cnn(p: Params, x: jax.Array, rng: jax.Array) -> jax.Array:
    first, second = jax.random.split(rng)
    h = jax.nn.relu(conv(x[..., None], p["conv1.weight"]) + p["conv1.bias"])
    h = jax.nn.relu(conv(h, p["conv2.weight"]) + p["conv2.bias"])
    h = dropout(max_pool(h, 2, 2, (0, 0)), 0.25, first).reshape(len(x), -1)
    h = dropout(jax.nn.relu(dense(p, "dense1", h)), 0.5, second)
    return dense(p, "dense2", h)


def autoencoder(p: Params, x: jax.Array, rng: jax.Array) -> jax.Array:
    names = sorted({name.rpartition(".")[0] for name in p}, key=lambda name: int(name.rpartition(".")[2]))
    for i, name in enumerate(names):
        x = dense(p, name, x)
        if i != 3:  # the code layer of 30 units is linear
            x = jax.nn.sigmoid(x)
    return x


def group_norm(p: Params, name: str, x: jax.Array) -> jax.Array:
    groups = x.reshape(*x.shape[:3], 2, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    normed = ((groups - mean) * lax.rsqrt(variance + 1e-3)).reshape(x.shape)
    return normed * p[f"{name}.weight"] + p[f"{name}.bias"]


def resnet(p: Params, x: jax.Array, rng: jax.Array) -> jax.Array:
    x = jnp.pad(x.transpose(0, 2, 3, 1), ((0, 0), (2, 3), (2, 3), (0, 0)))
    h = max_pool(jax.nn.relu(group_norm(p, "first.0", conv(x, p["conv.weight"], 2))), 3, 2, (0, 1))
    for i in range(8):
        at = f"blocks.{i}"
        y = h if i == 0 else jax.nn.relu(group_norm(p, f"{at}.before.0", h))
        y = conv(y, p[f"{at}.conv1.weight"], padding="SAME")
        y = jax.nn.relu(group_norm(p, f"{at}.between.0", y))
        y = conv(y, p[f"{at}.conv2.weight"], padding="SAME")
        if f"{at}.shortcut.0.weight" in p:
            h = group_norm(p, f"{at}.shortcut.1", conv(h, p[f"{at}.shortcut.0.weight"]))
        h = h + y
    return dense(p, "dense", jax.nn.relu(group_norm(p, "last.0", h)).mean((1, 2)))


def lstm(p: Params, name: str, x: jax.Array) -> jax.Array:
    """(B, T, F) -> (B, T, units): the inputs of all steps in one product, the state step by step."""
    recurrent = p[f"{name}.recurrent"]
    units = recurrent.shape[0]
    inputs = (x @ p[f"{name}.kernel"] + p[f"{name}.bias"]).transpose(1, 0, 2)

    def step(state: tuple, gates: jax.Array) -> tuple:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((len(x), units))
    return lax.scan(step, (start, start), inputs)[1].transpose(1, 0, 2)


def repeat_last(outputs: jax.Array, tokens: jax.Array) -> jax.Array:
    last = jnp.maximum((tokens != 0).sum(1, keepdims=True) - 1, 0)
    seen = jnp.minimum(jnp.arange(tokens.shape[1])[None], last)
    return jnp.take_along_axis(outputs, seen[..., None], axis=1)


def next_character(p: Params, tokens: jax.Array, rng: jax.Array) -> jax.Array:
    h = lstm(p, "lstm2", lstm(p, "lstm1", p["embedding.weight"][tokens]))
    return dense(p, "dense", repeat_last(h, tokens))


def next_word(p: Params, tokens: jax.Array, rng: jax.Array) -> jax.Array:
    h = dense(p, "projection", lstm(p, "lstm", p["embedding.weight"][tokens]))
    return dense(p, "dense", repeat_last(h, tokens))


def tags(p: Params, bags: jax.Array, rng: jax.Array) -> jax.Array:
    return bags @ p["kernel"] + p["bias"]


def logistic_regression(p: Params, x: jax.Array, rng: jax.Array) -> jax.Array:
    return dense(p, "dense", x)


def perceptron(p: Params, x: jax.Array, rng: jax.Array) -> jax.Array:
    return dense(p, "dense2", jax.nn.relu(dense(p, "dense1", x)))


NETWORKS: dict = {
    "cifar10": resnet,
    "cifar100": resnet,
    "emnist_cr": cnn,
    "emnist_ae": autoencoder,
    "shakespeare": next_character,
    "so_nwp": next_word,
    "so_lr": tags,
    "synthetic_lr": logistic_regression,
    "synthetic_mlp": perceptron,
}


def compute_losses(task: str, outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the loss of each example, scaled where a batch's loss is the sum, because FedJAX averages."""
    if task == "emnist_ae":
        return ((outputs - targets) ** 2).mean(1) * len(targets)
    if task == "so_lr":
        losses = jnp.maximum(outputs, 0) - outputs * targets + jnp.log1p(jnp.exp(-jnp.abs(outputs)))
        return losses.mean(1) * len(targets)
    log_p = jax.nn.log_softmax(outputs)
    losses = -jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    return losses.reshape(len(targets), -1).mean(1)


def dense_bags(words: np.ndarray) -> np.ndarray:
    """Return dense bags of words with 10,000 columns. They are computed before the timed rounds."""
    bags = np.zeros((len(words), 10_002), dtype=np.float32)
    np.add.at(bags, (np.arange(len(words))[:, None], np.minimum(words, 10_001)), 1.0)
    bags /= np.maximum((words > 0).sum(1, keepdims=True), 1)
    return np.ascontiguousarray(bags[:, 1:10_001])
