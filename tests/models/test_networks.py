"""The networks of CIFAR, Shakespeare and Stack Overflow: sizes, starts, and what they compute.

What they compute is compared with the equations written out in NumPy in double precision: Keras' LSTM with
its masking, TensorFlow's "same" padding, group normalisation, and the bag of words as a whole vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedopt.models.flat import Flat
from fedopt.models.linear import TagRegression
from fedopt.models.lstm import LSTM, NextCharacter, NextWord
from fedopt.models.resnet import ResNet18

Array = NDArray[np.float64]

# The paper's tables, layer by layer; the ResNet has none, its totals are those of the authors' network.
LAYERS: dict[Callable[[], nn.Module], dict[str, int]] = {
    NextCharacter: {"embedding": 720, "lstm1": 271_360, "lstm2": 525_312, "dense": 23_130},
    NextWord: {"embedding": 960_384, "lstm": 2_055_560, "projection": 64_416, "dense": 970_388},
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def parameters_of(module: nn.Module) -> int:
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
def test_networks_have_the_papers_number_of_parameters(build: Callable[[], nn.Module], total: int) -> None:
    model = build()
    assert parameters_of(model) == Flat(model).d == total
    assert sum(t.numel() for t in model.state_dict().values()) == total  # no second bias hides in a buffer
    for name, count in LAYERS.get(build, {}).items():
        assert parameters_of(model.get_submodule(name)) == count


# -- Keras' LSTM


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def keras_lstm(x: Array, mask: NDArray[np.bool_], w: Mapping[str, Array]) -> Array:
    """One layer, step by step: where the mask is off, state and output stay as they were."""
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
        out.append(last)
    return np.stack(out, axis=1)


def weights_of(model: nn.Module) -> dict[str, Array]:
    return {name: p.detach().double().numpy() for name, p in model.named_parameters()}


def layer(weights: Mapping[str, Array], name: str) -> dict[str, Array]:
    return {key.removeprefix(f"{name}."): w for key, w in weights.items() if key.startswith(f"{name}.")}


def keras_network(weights: Mapping[str, Array], tokens: NDArray[np.int64]) -> Array:
    """Either network from its weights: embedding, one or two LSTMs, one or two dense layers."""
    h, mask = weights["embedding.weight"][tokens], tokens != 0
    for name in ("lstm", "lstm1", "lstm2"):
        if found := layer(weights, name):
            h = keras_lstm(h, mask, found)
    for name in ("projection", "dense"):
        if found := layer(weights, name):
            h = h @ found["weight"].T + found["bias"]
    return h


def padded_tokens(rows: int, steps: int, vocabulary: int) -> Tensor:
    """Texts of 1, 2, ... tokens and one that fills its row, with zeros behind."""
    lengths = torch.tensor([*range(1, rows), steps])
    return torch.randint(1, vocabulary, (rows, steps)) * (torch.arange(steps) < lengths[:, None])


SMALL = [
    (NextCharacter, {"vocabulary": 11, "width": 3, "units": 5}),
    (NextWord, {"vocabulary": 13, "width": 4, "units": 6}),
]


def shaken(model: nn.Module) -> nn.Module:
    """Weights large enough for gates to open and close, biases included."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p))
    return model


@pytest.mark.parametrize(("build", "options"), SMALL, ids=["characters", "words"])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_recurrent_network_is_keras_equations_padding_included(
    build: type[nn.Module], options: dict[str, int], mode: str
) -> None:
    model = shaken(build(**options)).train(mode == "train")
    tokens = padded_tokens(6, 9, options["vocabulary"])
    expected = torch.tensor(keras_network(weights_of(model), tokens.numpy()))
    torch.testing.assert_close(model(tokens).double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.double()(tokens), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("build", "options"), SMALL, ids=["characters", "words"])
def test_gradients_of_a_recurrent_network_are_those_of_keras_equations(
    build: type[nn.Module], options: dict[str, int]
) -> None:
    """Central differences of the equations along random directions; the loss counts padded steps too."""
    model = shaken(build(**options)).double()
    tokens = padded_tokens(4, 6, options["vocabulary"])
    blame = torch.randn(4, 6, options["vocabulary"], dtype=torch.float64)
    gradients = torch.autograd.grad((model(tokens) * blame).sum(), list(model.parameters()))
    weights = weights_of(model)
    for (name, w), gradient in zip(weights.items(), gradients, strict=True):
        direction = torch.randn(w.shape, dtype=torch.float64).numpy()
        ahead, behind = (
            (keras_network(weights | {name: w + step * direction}, tokens.numpy()) * blame.numpy()).sum()
            for step in (1e-5, -1e-5)
        )
        along = (gradient.numpy() * direction).sum()
        assert along == pytest.approx((ahead - behind) / 2e-5, rel=1e-6, abs=1e-7), name


def test_what_follows_the_end_of_a_text_changes_nothing_before_it() -> None:
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
def test_an_lstm_starts_as_in_keras(build: Callable[[], LSTM], bound: float, deviation: float) -> None:
    lstm = build()
    units = lstm.recurrent.shape[1]
    assert 0.98 * bound < float(lstm.kernel.detach().abs().max()) <= bound
    assert float(lstm.kernel.detach().std()) == pytest.approx(deviation, rel=0.03)
    columns = lstm.recurrent.detach()
    torch.testing.assert_close(columns.T @ columns, torch.eye(units), atol=1e-4, rtol=0)
    forget = torch.zeros(4, units)
    forget[1] = 1.0  # of input, forget, cell, output
    assert torch.equal(lstm.bias.detach(), forget.flatten())


def test_embeddings_start_within_a_twentieth_and_dense_layers_glorot_uniform() -> None:
    model = NextWord()
    assert 0.0499 < float(model.embedding.weight.detach().abs().max()) <= 0.05
    assert model.embedding.weight[0].any()  # padding has a row like any other
    for dense, fans in ((model.projection, 670 + 96), (model.dense, 96 + 10_004)):
        assert 0.99 * sqrt(6 / fans) < float(dense.weight.detach().abs().max()) <= sqrt(6 / fans)
        assert not dense.bias.any()


# -- tags


def whole_bag(words: list[int], vocabulary: int) -> Array:
    """The mean of one-hot vectors over all words, of which those outside the vocabulary are cut off."""
    hot = np.zeros((max(len(words), 1), vocabulary + 1))
    for at, word in enumerate(words):
        hot[at, word - 1] = 1
    return hot.mean(axis=0)[:vocabulary]


def test_tag_regression_multiplies_the_bag_of_words() -> None:
    model = shaken(TagRegression(vocabulary=6, tags=3)).double()
    texts = [[1, 6, 1], [7, 2, 7, 3], [7], [], [5, 4, 3, 2, 1]]  # 7 is outside the vocabulary
    rows = torch.tensor([words + [0] * (5 - len(words)) for words in texts])
    bags = np.stack([whole_bag(words, 6) for words in texts])
    assert bags.sum(axis=1) == pytest.approx([1, 1 / 2, 0, 0, 1])
    weights = weights_of(model)
    expected = bags @ weights["kernel"] + weights["bias"]
    out = model(rows)
    torch.testing.assert_close(out, torch.tensor(expected))
    kernel, bias = torch.autograd.grad(out.square().sum(), [model.kernel, model.bias])
    torch.testing.assert_close(kernel, torch.tensor(2 * bags.T @ expected))
    torch.testing.assert_close(bias, torch.tensor(2 * expected.sum(axis=0)))


def test_tag_regression_starts_glorot_uniform_with_a_zero_bias() -> None:
    model, bound = TagRegression(), sqrt(6 / 10_500)
    assert model.kernel.shape == (10_000, 500)
    assert 0.999 * bound < float(model.kernel.detach().abs().max()) <= bound
    assert not model.bias.any()


# -- ResNet-18


def same_padding(x: Tensor, size: int, stride: int, value: float) -> Tensor:
    """TensorFlow's rule: as little padding as covers the input, the odd pixel at the end."""
    total = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in x.shape[2:]]
    (top, bottom), (left, right) = ((t // 2, t - t // 2) for t in total)
    return F.pad(x, (left, right, top, bottom), value=value)


def conv(x: Tensor, w: Tensor, stride: int = 1) -> Tensor:
    return F.conv2d(same_padding(x, w.shape[-1], stride, 0.0), w, stride=stride)


def norm_relu(x: Tensor, w: Mapping[str, Tensor], name: str, relu: bool = True) -> Tensor:
    """Each image's channels in two halves; each half to mean 0 and variance 1, then scaled and shifted."""
    halves = x.reshape(len(x), 2, -1)
    mean, var = halves.mean(2, keepdim=True), halves.var(2, correction=0, keepdim=True)
    h = ((halves - mean) / (var + 1e-3).sqrt()).reshape(x.shape)
    h = h * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]
    return h.clamp(min=0) if relu else h


def by_hand_resnet(w: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The authors' network, from facts about it: order of layers, strides, shortcuts."""
    h = norm_relu(conv(x, w["conv.weight"], stride=2), w, "first.0")
    h = F.max_pool2d(same_padding(h, 3, 2, float("-inf")), 3, 2)
    for block in range(8):
        name = f"blocks.{block}"
        before = h if block == 0 else norm_relu(h, w, f"{name}.before.0")
        inner = norm_relu(conv(before, w[f"{name}.conv1.weight"]), w, f"{name}.between.0")
        residual = conv(inner, w[f"{name}.conv2.weight"])
        if block in (2, 4, 6):  # where channels double
            h = norm_relu(conv(h, w[f"{name}.shortcut.0.weight"]), w, f"{name}.shortcut.1", relu=False)
        assert residual.shape[2:] == (6, 6)
        h = h + residual
    h = norm_relu(h, w, "last.0").mean((2, 3))
    return h @ w["dense.weight"].T + w["dense.bias"]


def test_the_resnet_is_the_authors_network() -> None:
    model = ResNet18(classes=10).double()
    with torch.no_grad():  # norms that do something, and logits that differ
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(0.3 * torch.randn_like(p))
        model.dense.weight.mul_(100)
    x = torch.randn(2, 3, 24, 24, dtype=torch.float64)
    torch.testing.assert_close(model(x), by_hand_resnet(model.state_dict(), x))


def test_images_are_halved_twice_and_all_four_stages_work_on_6_by_6() -> None:
    model, shapes = ResNet18(), {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda module, args, out: shapes.update({name: tuple(out.shape[1:])})

    for name, module in model.named_modules():
        module.register_forward_hook(note(name))
    with torch.no_grad():
        model(torch.randn(1, 3, 24, 24))
    assert shapes["conv"] == (64, 12, 12) and shapes["pool"] == (64, 6, 6)
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    assert [shapes[f"blocks.{k}"] for k in range(8)] == [(width, 6, 6) for width in widths]
    assert shapes["last"] == (512, 6, 6)
    assert shapes["dense"] == (100,)


def test_the_resnet_starts_as_in_keras() -> None:
    model = ResNet18()
    for kernel in (model.conv.weight, model.get_parameter("blocks.6.shortcut.0.weight")):
        deviation = sqrt(2 / kernel[0].numel())  # he_normal: 2 / fan in
        assert float(kernel.detach().std()) == pytest.approx(deviation, rel=0.03)
        assert 0.98 < float(kernel.detach().abs().max()) / (2 * deviation / 0.87962566) <= 1 + 1e-6
    assert float(model.dense.weight.detach().std()) == pytest.approx(0.01, rel=0.03)
    assert not model.dense.bias.any()


def test_the_penalty_is_l2_of_kernels_and_the_last_bias_alone() -> None:
    model = ResNet18(classes=10, l2=1e-4)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.fill_(0.0 if p.ndim > 1 or name == "dense.bias" else 7.0)  # the norms' are not counted
        model.conv.weight.fill_(1.0)  # 7 x 7 x 3 x 64 = 9,408
        model.dense.bias.fill_(2.0)  # 10 x 4
    assert model.penalty().item() == pytest.approx(1e-4 * (9408 + 40))
    assert ResNet18(classes=10).penalty().item() == 0.0
