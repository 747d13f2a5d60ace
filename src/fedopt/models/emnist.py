"""The two EMNIST networks, with the paper's parameter counts (its tables in the appendix).

The tables and the authors' code differ in some activations. `activations="as_run"` follows the code, for
which the published rates were tuned; "as_printed" follows the tables.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedopt.models.dropout import Dropout
from fedopt.models.keras import conv, dense

ACTIVATIONS = ("as_run", "as_printed")


class CharacterCNN(nn.Module):
    """EMNIST character recognition, 1,206,590 parameters for 62 classes.

    The table has no activation after the first convolution and after the dense layer of 128; the code has
    ReLU after both.
    """

    each_layer_once = True

    def __init__(self, *, classes: int = 62, activations: str = "as_run") -> None:
        super().__init__()
        self.conv1 = conv(1, 32, 3)
        self.conv2 = conv(32, 64, 3)
        self.pool = nn.MaxPool2d(2)
        self.dropout1 = Dropout(0.25)
        self.dense1 = dense(9216, 128)
        self.dropout2 = Dropout(0.5)
        self.dense2 = dense(128, classes)
        self.inner: nn.Module = nn.ReLU() if activations == "as_run" else nn.Identity()

    def forward(self, pixels: Tensor) -> Tensor:  # (B, 28, 28) -> (B, classes)
        # Channels last: pooling takes a twentieth of the time.
        images = pixels.unsqueeze(-1).permute(0, 3, 1, 2)
        h = self.conv2(self.inner(self.conv1(images)))
        h = torch.relu(self.pool(h))  # ReLU and maximum commute; this order needs a quarter of the work
        h = self.inner(self.dense1(self.dropout1(h.contiguous()).flatten(1)))
        logits: Tensor = self.dense2(self.dropout2(h))
        return logits


class Autoencoder(nn.Module):
    """EMNIST autoencoder 784-1000-500-250-30-250-500-1000-784, 2,837,314 parameters.

    The caption states sigmoid at all dense layers; in the authors' code the layer of 30 units is linear.
    """

    each_layer_once = True
    WIDTHS = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)

    def __init__(self, *, activations: str = "as_run") -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip(self.WIDTHS, self.WIDTHS[1:], strict=False):
            layers.append(dense(fan_in, fan_out))
            if fan_out != 30 or activations == "as_printed":
                layers.append(nn.Sigmoid())
        self.layers = nn.Sequential(*layers)

    def forward(self, pixels: Tensor) -> Tensor:  # (B, 784) -> (B, 784)
        out: Tensor = self.layers(pixels)
        return out
