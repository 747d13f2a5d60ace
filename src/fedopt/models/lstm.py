"""The two recurrent networks, with Keras' LSTM: one bias vector, and padding that is stepped over.

Keras masks the token 0: at such a step the state is carried on and the last output is repeated. In these
tasks padding only ever follows the text, so nothing real comes after it; the fused kernel may then run
through it, if its outputs there are replaced by the last one before. That is exact, and nearly free.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedopt.models.keras import dense, embedding, he_normal_


class LSTM(nn.Module):
    """Keras' LSTM layer that returns all its outputs: 4 (inputs + units + 1) units parameters.

    Both libraries order the gates input, forget, cell, output; torch has a second bias vector, which is
    held at zero here.
    """

    fused = True  # False: the same from plain products, which `torch.func.vmap` knows

    def __init__(self, inputs: int, units: int, initial: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(4 * units, inputs))
        self.recurrent = nn.Parameter(torch.empty(4 * units, units))
        self.bias = nn.Parameter(torch.zeros(4 * units))
        with torch.no_grad():
            initial(self.kernel)
            nn.init.orthogonal_(self.recurrent)
            self.bias[units : 2 * units] = 1.0  # the forget gate

    def forward(self, x: Tensor) -> Tensor:  # (B, T, inputs) -> (B, T, units)
        if not self.fused:
            return self._stepwise(x)
        start = x.new_zeros(1, len(x), self.recurrent.shape[1])
        weights = [self.kernel, self.recurrent, self.bias, torch.zeros_like(self.bias)]
        out: Tensor = torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]
        return out

    def _stepwise(self, x: Tensor) -> Tensor:
        entering = F.linear(x, self.kernel, self.bias)
        h = c = entering.new_zeros(len(x), self.recurrent.shape[1])
        outputs = []
        for step in entering.unbind(1):
            i, f, g, o = (step + F.linear(h, self.recurrent)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


def repeat_last(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Outputs behind the end of each text replaced by the one at its end: (B, T, F), (B, T) -> (B, T, F).

    >>> repeat_last(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[7, 5, 0]])).flatten().tolist()
    [1.0, 2.0, 2.0]
    """
    steps = torch.arange(tokens.shape[1], device=tokens.device)
    last = (tokens != 0).sum(1, keepdim=True) - 1
    seen = torch.minimum(steps, last.clamp(min=0))
    return outputs.gather(1, seen.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))


class NextCharacter(nn.Module):
    """Shakespeare: embedding 8, two LSTMs of 256, dense 90; 820,522 parameters."""

    called_once = True

    def __init__(self, *, vocabulary: int = 90, width: int = 8, units: int = 256) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, width)
        self.lstm1 = LSTM(width, units, he_normal_)
        self.lstm2 = LSTM(units, units, he_normal_)
        self.dense = dense(units, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, T, vocabulary)
        h = self.lstm2(self.lstm1(self.embedding(tokens)))
        logits: Tensor = self.dense(repeat_last(h, tokens))
        return logits


class NextWord(nn.Module):
    """Stack Overflow: embedding 96, LSTM of 670, dense 96, dense 10,004; 4,050,748 parameters.

    The dense layers act on each step alone, so the padding is dealt with where the outputs are narrowest.
    """

    called_once = True

    def __init__(self, *, vocabulary: int = 10_004, width: int = 96, units: int = 670) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, width)
        self.lstm = LSTM(width, units, nn.init.xavier_uniform_)
        self.projection = dense(units, width)
        self.dense = dense(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, T, vocabulary)
        h = self.projection(self.lstm(self.embedding(tokens)))
        logits: Tensor = self.dense(repeat_last(h, tokens))
        return logits
