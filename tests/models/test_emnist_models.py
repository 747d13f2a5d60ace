"""The two EMNIST networks."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.models import Autoencoder, CharacterCNN, Flat

# The paper's table of the character recognition network: output shape and parameters of each layer. Its
# shapes are height, width, channels; torch's are channels, height, width.
CNN_LAYERS = {
    "conv1": ((32, 26, 26), 320),
    "conv2": ((64, 24, 24), 18_496),
    "pool": ((64, 12, 12), 0),
    "dropout1": ((64, 12, 12), 0),
    "dense1": ((128,), 1_179_776),
    "dropout2": ((128,), 0),
    "dense2": ((62,), 7_998),
}


CNN_TOTAL = 1_206_590


# and of the autoencoder: units and parameters of each dense layer
AUTOENCODER_LAYERS = [
    (1000, 785_000),
    (500, 500_500),
    (250, 125_250),
    (30, 7_530),
    (250, 7_750),
    (500, 125_500),
    (1000, 501_000),
    (784, 784_784),
]


AUTOENCODER_TOTAL = 2_837_314


def images(n: int = 8) -> Tensor:
    return torch.rand(n, 28, 28)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def inputs_and_outputs(model: nn.Module, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Return input and output of each layer in a forward pass, by name."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda layer, args, out: seen.update({name: (args[0].detach(), out.detach())})

    handles = [layer.register_forward_hook(note(name)) for name, layer in model.named_modules() if name]
    model(x)
    for handle in handles:
        handle.remove()
    return seen


def test_character_cnn_has_the_layers_of_the_paper() -> None:
    model = CharacterCNN()
    seen = inputs_and_outputs(model, images(2))
    for name, (shape, parameters) in CNN_LAYERS.items():
        assert seen[name][1].shape == (2, *shape)
        assert count_parameters(model.get_submodule(name)) == parameters
    assert seen["dense1"][0].shape == (2, 9216)
    assert count_parameters(model) == CNN_TOTAL == sum(count for _, count in CNN_LAYERS.values())
    assert Flat(model).d == CNN_TOTAL


def test_autoencoder_has_the_layers_of_the_paper() -> None:
    model = Autoencoder()
    dense = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert [(layer.out_features, count_parameters(layer)) for layer in dense] == AUTOENCODER_LAYERS
    assert model(torch.rand(3, 784)).shape == (3, 784)
    assert count_parameters(model) == AUTOENCODER_TOTAL == sum(count for _, count in AUTOENCODER_LAYERS)
    assert Flat(model).d == AUTOENCODER_TOTAL


def by_hand_cnn(w: dict[str, Tensor], x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
    h = inner(F.conv2d(x[:, None], w["conv1.weight"], w["conv1.bias"]))
    h = F.max_pool2d(F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"])), 2)
    h = inner(h.flatten(1) @ w["dense1.weight"].T + w["dense1.bias"])
    return h @ w["dense2.weight"].T + w["dense2.bias"]


@pytest.mark.parametrize(("activations", "inner"), [("as_run", F.relu), ("as_printed", lambda h: h)])
def test_character_cnn_equals_plain_functions(activations: str, inner: Callable[[Tensor], Tensor]) -> None:
    """As printed only the second convolution has a ReLU; the authors' code has it at three layers."""
    model, x = CharacterCNN(activations=activations).eval(), images()
    torch.testing.assert_close(model(x), by_hand_cnn(model.state_dict(), x, inner))


def test_variants_have_their_activations() -> None:
    """Whether a layer's input can be negative shows whether a ReLU precedes it."""
    negative = {}
    for activations in ("as_run", "as_printed"):
        seen = inputs_and_outputs(CharacterCNN(activations=activations).eval(), images())
        negative[activations] = [bool((seen[name][0] < 0).any()) for name in ("conv2", "dense1", "dense2")]
    assert negative == {"as_run": [False, False, False], "as_printed": [True, False, True]}


@pytest.mark.parametrize(("activations", "sigmoids"), [("as_run", 7), ("as_printed", 8)])
def test_autoencoder_equals_plain_functions(activations: str, sigmoids: int) -> None:
    """The caption has a sigmoid at all eight dense layers; in the code the layer of 30 units is linear."""
    model, x = Autoencoder(activations=activations), torch.rand(4, 784)
    assert sum(isinstance(layer, nn.Sigmoid) for layer in model.modules()) == sigmoids
    h, code = x, x
    for layer in (layer for layer in model.modules() if isinstance(layer, nn.Linear)):
        h = F.linear(h, layer.weight, layer.bias)
        if layer.out_features != 30 or activations == "as_printed":
            h = h.sigmoid()
        code = h if layer.out_features == 30 else code
    torch.testing.assert_close(model(x), h)
    assert bool(((code < 0) | (code > 1)).any()) == (activations == "as_run")
    assert 0 < float(h.detach().min()) and float(h.detach().max()) < 1  # outputs are pixel values


def test_dropout_is_active_in_training_only() -> None:
    model, x = CharacterCNN(activations="as_printed"), images()
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize(("layer", "p"), [("dropout1", 0.25), ("dropout2", 0.5)])
def test_dropout_layers_have_the_rates_of_the_paper(layer: str, p: float) -> None:
    before, after = inputs_and_outputs(CharacterCNN().train(), images(64))[layer]
    alive = before != 0
    dropped = (after[alive] == 0).float().mean().item()
    n = int(alive.sum())
    assert dropped == pytest.approx(p, abs=4 * sqrt(p * (1 - p) / n))
    torch.testing.assert_close(after[after != 0], before[after != 0] / (1 - p))


# sqrt(6 / (fan in + fan out)); for a convolution a fan is channels times the 9 places of its kernel
CNN_BOUNDS = {
    "conv1": sqrt(6 / (1 * 9 + 32 * 9)),
    "conv2": sqrt(6 / (32 * 9 + 64 * 9)),
    "dense1": sqrt(6 / (9216 + 128)),
    "dense2": sqrt(6 / (128 + 62)),
}


AUTOENCODER_BOUNDS = {"layers.0": sqrt(6 / 1784), "layers.6": sqrt(6 / 280), "layers.13": sqrt(6 / 1784)}


@pytest.mark.parametrize(
    ("build", "bounds"),
    [(CharacterCNN, CNN_BOUNDS), (Autoencoder, AUTOENCODER_BOUNDS)],
    ids=["cnn", "autoencoder"],
)
def test_kernels_are_glorot_uniform_and_biases_zero(
    build: Callable[[], nn.Module], bounds: dict[str, float]
) -> None:
    model = build()
    for name, bound in bounds.items():
        weight, bias = (model.get_parameter(f"{name}.{kind}").detach() for kind in ("weight", "bias"))
        assert not bias.any()
        assert float(weight.abs().max()) <= bound
        # a uniform law over +-bound has standard deviation bound / sqrt(3); 288 numbers give it within 10 %
        assert float(weight.std()) == pytest.approx(bound / sqrt(3), rel=0.1)
        assert abs(float(weight.mean())) < 4 * bound / sqrt(3 * weight.numel())


def test_initial_weights_of_networks_depend_on_the_seed() -> None:
    vectors = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        vectors.append(Flat(CharacterCNN()).read())
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
