"""The two recurrent networks with the LSTM of Keras: one bias vector, and masked padding.

Keras masks the token 0: the state does not change at such a step. On a CPU the last output is repeated there,
on a GPU (cuDNN) the output is zero; `padding` selects one of them. In these tasks padding only follows the
text. The fused kernel therefore runs over the padding, and its outputs there are replaced. This is exact and
costs little.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.models.keras import dense, embedding, he_normal_

PADDING = ("repeat", "zero")  # outputs of the last recurrent layer at padding


class LSTM(nn.Module):
    """Keras' LSTM layer that returns all its outputs: 4 (inputs + units + 1) units parameters.

    Both libraries order the gates input, forget, cell, output. torch has a second bias vector, which is zero
    here.
    """

    _basic = False

    def __init__(self, inputs: int, units: int, initial: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(4 * units, inputs))
        self.recurrent = nn.Parameter(torch.empty(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        with torch.no_grad():
            initial(self.kernel)
            nn.init.orthogonal_(self.recurrent)
            self.bias[units : 2 * units] = 1.0  # the forget gate

    def use_basic_operations(self) -> None:
        self._basic = True

    def forward(self, x: Tensor) -> Tensor:  # (B, T, inputs) -> (B, T, units)
        if self._basic:
            return self._stepwise(x)
        start = x.new_zeros(1, len(x), self.recurrent.shape[1])
        weights = [self.kernel, self.recurrent, self.bias, torch.zeros_like(self.bias)]
        out: Tensor = torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]
        return out

    def _stepwise(self, x: Tensor) -> Tensor:
        gates = F.linear(x, self.kernel, self.bias)
        h = c = gates.new_zeros(len(x), self.recurrent.shape[1])
        outputs = []
        for step in gates.unbind(1):
            i, f, g, o = (step + F.linear(h, self.recurrent)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


def repeat_last(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Replace outputs after the end of each text by the output at its end: (B, T, F), (B, T) -> (B, T, F).

    >>> repeat_last(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[7, 5, 0]])).flatten().tolist()
    [1.0, 2.0, 2.0]
    """
    steps = torch.arange(tokens.shape[1], device=tokens.device)
    last = (tokens != 0).sum(1, keepdim=True) - 1
    source = torch.minimum(steps, last.clamp(min=0))
    return outputs.gather(1, source.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))


def zero_padding(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Replace outputs at padding by zero: (B, T, F), (B, T) -> (B, T, F).

    >>> zero_padding(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[7, 5, 0]])).flatten().tolist()
    [1.0, 2.0, 0.0]
    """
    return outputs * (tokens != 0).unsqueeze(-1)


class NextCharacter(nn.Module):
    """Shakespeare: embedding 8, two LSTMs of 256, dense 90; 820,522 parameters."""

    each_layer_once = True

    def __init__(
        self, *, vocabulary: int = 90, width: int = 8, units: int = 256, padding: str = PADDING[0]
    ) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = embedding(vocabulary, width)
        self.lstm1 = LSTM(width, units, he_normal_)
        self.lstm2 = LSTM(units, units, he_normal_)
        self.dense = dense(units, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, T, vocabulary)
        h = self.lstm2(self.lstm1(self.embedding(tokens)))
        h = repeat_last(h, tokens) if self.padding == "repeat" else zero_padding(h, tokens)
        logits: Tensor = self.dense(h)
        return logits


class NextWord(nn.Module):
    """Stack Overflow: embedding 96, LSTM of 670, dense 96, dense 10,004; 4,050,748 parameters.

    The dense layers act on each step separately, so the last output is repeated where the outputs are
    narrowest.
    """

    each_layer_once = True

    def __init__(
        self, *, vocabulary: int = 10_004, width: int = 96, units: int = 670, padding: str = PADDING[0]
    ) -> None:
        super().__init__()
        self.padding = padding
        self.embedding = embedding(vocabulary, width)
        self.lstm = LSTM(width, units, nn.init.xavier_uniform_)
        self.projection = dense(units, width)
        self.dense = dense(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, T, vocabulary)
        h = self.lstm(self.embedding(tokens))
        if self.padding == "zero":
            h = zero_padding(h, tokens)
        h = self.projection(h)
        if self.padding == "repeat":
            h = repeat_last(h, tokens)
        logits: Tensor = self.dense(h)
        return logits
