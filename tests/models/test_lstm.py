"""The recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.models.flat import Flat
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import LSTM, PADDING, NextCharacter, NextWord
from fedopt.models.resnet import ResNet18


def test_lstm_with_basic_operations_equals_the_fused_kernel() -> None:
    layer = LSTM(5, 7, nn.init.xavier_uniform_).double()
    x = torch.rand(3, 11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs, gradients = [], []
    for basic in (False, True):
        if basic:
            layer.use_basic_operations()
        outputs.append(layer(x))
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), list(layer.parameters())))
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-13)


Array = NDArray[np.float64]


# The paper's tables, layer by layer; the ResNet has none, its totals are those of the authors' network.
LAYERS: dict[Callable[[], nn.Module], dict[str, int]] = {
    NextCharacter: {"embedding": 720, "lstm1": 271_360, "lstm2": 525_312, "dense": 23_130},
    NextWord: {"embedding": 960_384, "lstm": 2_055_560, "projection": 64_416, "dense": 970_388},
}


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("build", "total"),
    [
        (NextCharacter, 820_522),
        (NextWord, 4_050_748),
        (TagRegression, 5_000_500),
        (ResNet18, 11_227_812),
        (lambda: ResNet18(classes=10), 11_181_642),
    ],
    ids=["characters", "words", "tags", "cifar100", "cifar10"],
)
def test_networks_have_the_parameters_of_the_paper(build: Callable[[], nn.Module], total: int) -> None:
    model = build()
    assert count_parameters(model) == Flat(model).d == total
    assert sum(t.numel() for t in model.state_dict().values()) == total  # no second bias in a buffer
    for name, count in LAYERS.get(build, {}).items():
        assert count_parameters(model.get_submodule(name)) == count


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def keras_lstm(x: Array, mask: NDArray[np.bool_], w: Mapping[str, Array], padding: str) -> Array:
    """Compute one layer step by step; masked steps keep the state and repeat the output, or it is zero."""
    units = w["recurrent"].shape[1]
    h, c, out = np.zeros((len(x), units)), np.zeros((len(x), units)), []
    last = np.zeros_like(h)
    for t in range(x.shape[1]):
        z = x[:, t] @ w["kernel"].T + h @ w["recurrent"].T + w["bias"]
        i, f, g, o = (z[:, k * units : (k + 1) * units] for k in range(4))
        new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        new_h = sigmoid(o) * np.tanh(new_c)
        on = mask[:, t, None]
        h, c, last = np.where(on, new_h, h), np.where(on, new_c, c), np.where(on, new_h, last)
        out.append(last if padding == "repeat" else np.where(on, new_h, 0))
    return np.stack(out, axis=1)


def weights_of(model: nn.Module) -> dict[str, Array]:
    return {name: p.detach().double().numpy() for name, p in model.named_parameters()}


def layer(weights: Mapping[str, Array], name: str) -> dict[str, Array]:
    return {key.removeprefix(f"{name}."): w for key, w in weights.items() if key.startswith(f"{name}.")}


def keras_network(weights: Mapping[str, Array], tokens: NDArray[np.int64], padding: str) -> Array:
    """Compute a network from its weights: embedding, one or two LSTMs, one or two dense layers."""
    h, mask = weights["embedding.weight"][tokens], tokens != 0
    for name in ("lstm", "lstm1", "lstm2"):
        if found := layer(weights, name):
            h = keras_lstm(h, mask, found, padding)
    for name in ("projection", "dense"):
        if found := layer(weights, name):
            h = h @ found["weight"].T + found["bias"]
    return h


def padded_tokens(rows: int, steps: int, vocabulary: int) -> Tensor:
    """Return texts of 1, 2, ... tokens, padded with zeros, and one without padding."""
    lengths = torch.tensor([*range(1, rows), steps])
    return torch.randint(1, vocabulary, (rows, steps)) * (torch.arange(steps) < lengths[:, None])


SMALL = [
    (NextCharacter, {"vocabulary": 11, "width": 3, "units": 5}),
    (NextWord, {"vocabulary": 13, "width": 4, "units": 6}),
]


def shaken(model: nn.Module) -> nn.Module:
    """Set weights and biases that are large enough to open and close gates."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p))
    return model


@pytest.mark.parametrize(("build", "options"), SMALL, ids=["characters", "words"])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_recurrent_network_equals_the_equations_of_keras(
    build: type[nn.Module], options: dict[str, int], mode: str, padding: str
) -> None:
    model = shaken(build(**options, padding=padding)).train(mode == "train")
    tokens = padded_tokens(6, 9, options["vocabulary"])
    expected = torch.tensor(keras_network(weights_of(model), tokens.numpy(), padding))
    torch.testing.assert_close(model(tokens).double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.double()(tokens), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("build", "options"), SMALL, ids=["characters", "words"])
@pytest.mark.parametrize("padding", PADDING)
def test_gradients_of_recurrent_network_equal_keras(
    build: type[nn.Module], options: dict[str, int], padding: str
) -> None:
    """Central differences of the equations along random directions; the loss counts padded steps too."""
    model = shaken(build(**options, padding=padding)).double()
    tokens = padded_tokens(4, 6, options["vocabulary"])
    blame = torch.randn(4, 6, options["vocabulary"], dtype=torch.float64)
    gradients = torch.autograd.grad((model(tokens) * blame).sum(), list(model.parameters()))
    weights = weights_of(model)
    for (name, w), gradient in zip(weights.items(), gradients, strict=True):
        direction = torch.randn(w.shape, dtype=torch.float64).numpy()
        ahead, behind = (
            (
                keras_network(weights | {name: w + step * direction}, tokens.numpy(), padding) * blame.numpy()
            ).sum()
            for step in (1e-5, -1e-5)
        )
        along = (gradient.numpy() * direction).sum()
        assert along == pytest.approx((ahead - behind) / 2e-5, rel=1e-6, abs=1e-7), name


def test_zero_padding_gives_the_bias_of_the_last_layer() -> None:
    """By hand: at padding the dense layer sees zeros, so its output is its bias."""
    model = shaken(NextCharacter(vocabulary=3, width=1, units=1, padding="zero"))
    outputs = model(torch.tensor([[1, 2, 0, 0]]))
    bias = model.get_submodule("dense").bias
    assert torch.equal(outputs[0, 2], bias) and torch.equal(outputs[0, 3], bias)
    assert not torch.equal(outputs[0, 1], bias)


def test_padding_does_not_change_earlier_outputs() -> None:
    model = NextCharacter(vocabulary=11, width=3, units=5)
    tokens = padded_tokens(4, 7, 11)
    whole = model(tokens)
    torch.testing.assert_close(model(tokens[:, :4]), whole[:, :4])


@pytest.mark.parametrize(
    ("build", "bound", "deviation"),
    [
        # he_normal of the 8 inputs: a deviation of sqrt(2/8), cut at twice that / 0.8796
        (lambda: NextCharacter().lstm1, 2 * 0.5 / 0.87962566, 0.5),
        # Glorot-uniform of 96 inputs and 4 x 670 outputs
        (lambda: NextWord().lstm, sqrt(6 / (96 + 2680)), sqrt(2 / (96 + 2680))),
    ],
    ids=["characters", "words"],
)
def test_lstm_is_initialised_as_in_keras(build: Callable[[], LSTM], bound: float, deviation: float) -> None:
    lstm = build()
    units = lstm.recurrent.shape[1]
    assert 0.98 * bound < float(lstm.kernel.detach().abs().max()) <= bound
    assert float(lstm.kernel.detach().std()) == pytest.approx(deviation, rel=0.03)
    columns = lstm.recurrent.detach()
    torch.testing.assert_close(columns.T @ columns, torch.eye(units), atol=1e-4, rtol=0)
    forget = torch.zeros(4, units)
    forget[1] = 1.0  # of input, forget, cell, output
    assert torch.equal(lstm.bias.detach(), forget.flatten())


def test_embeddings_and_dense_layers_are_initialised_as_in_keras() -> None:
    model = NextWord()
    assert 0.0499 < float(model.embedding.weight.detach().abs().max()) <= np.float32(0.05)
    assert model.embedding.weight[0].any()  # the padding has a row
    for dense, fans in ((model.projection, 670 + 96), (model.dense, 96 + 10_004)):
        largest = float(dense.weight.detach().abs().max())
        assert 0.99 * sqrt(6 / fans) < largest <= np.float32(sqrt(6 / fans))
        assert not dense.bias.any()
