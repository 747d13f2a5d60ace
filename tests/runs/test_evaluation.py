"""Evaluation of a finished run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedopt
from fedopt.data.synthetic import emnist as synthetic_emnist


def test_percentiles_over_clients_match_manual_evaluation(tmp_path: Path):
    """By hand: the accuracy of the trained module on each of five writers."""
    settings = {"data.clients": 5, "clients_per_round": 5, "client.steps": 1, "rounds": 1, "eval.sample": 50}
    fedopt.run("emnist_cr", config=settings, out=tmp_path / "run")
    measured = fedopt.evaluate(tmp_path / "run").document()
    module = fedopt.load(tmp_path / "run").model
    hits, losses = [], []
    for i in range(5):
        pixels, labels = synthetic_emnist.examples("test", i).values()
        with torch.no_grad():
            outputs = module(torch.tensor(pixels).float() / 255)
        hits.append(outputs.argmax(1).numpy() == labels)
        losses.append(nn.functional.cross_entropy(outputs, torch.tensor(labels), reduction="none").numpy())
    assert measured["clients"] == 5 and measured["examples"] == sum(map(len, hits))
    assert measured["accuracy"] == pytest.approx(np.concatenate(hits).mean(), rel=1e-9)
    assert measured["loss"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-5)
    by_client = sorted(float(h.mean()) for h in hits)
    expected = dict(zip(("25", "50", "75"), by_client[1:4], strict=True))  # quarters of five are themselves
    expected["5"] = by_client[0] + 0.2 * (by_client[1] - by_client[0])
    expected["95"] = by_client[4] - 0.2 * (by_client[4] - by_client[3])
    assert measured["percentiles_over_clients"] == pytest.approx(expected)
