"""ResNet-18."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.models.resnet import ResNet18


def same_padding(x: Tensor, size: int, stride: int, value: float) -> Tensor:
    """Pad as TensorFlow: the least padding that covers the input, the odd pixel at the end."""
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
    """Compute the authors' network: order of layers, strides and shortcuts."""
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


def test_resnet_equals_the_network_of_the_authors() -> None:
    model = ResNet18(classes=10).double()
    with torch.no_grad():  # norms and logits with visible effects
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


def test_resnet_is_initialised_as_in_keras() -> None:
    model = ResNet18()
    for kernel in (model.conv.weight, model.get_parameter("blocks.6.shortcut.0.weight")):
        deviation = sqrt(2 / kernel[0].numel())  # he_normal: 2 / fan in
        assert float(kernel.detach().std()) == pytest.approx(deviation, rel=0.03)
        assert 0.98 < float(kernel.detach().abs().max()) / (2 * deviation / 0.87962566) <= 1 + 1e-6
    assert float(model.dense.weight.detach().std()) == pytest.approx(0.01, rel=0.03)
    assert not model.dense.bias.any()


def test_penalty_is_l2_of_kernels_and_last_bias() -> None:
    model = ResNet18(classes=10, l2=1e-4)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.fill_(0.0 if p.ndim > 1 or name == "dense.bias" else 7.0)  # parameters of norms do not count
        model.conv.weight.fill_(1.0)  # 7 x 7 x 3 x 64 = 9,408
        model.dense.bias.fill_(2.0)  # 10 x 4
    assert model.penalty().item() == pytest.approx(1e-4 * (9408 + 40))
    assert ResNet18(classes=10).penalty().item() == 0.0
