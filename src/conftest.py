"""Doctests run in an empty directory and know the names that examples use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedopt


@pytest.fixture(autouse=True)
def example_environment(
    doctest_namespace: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    doctest_namespace |= {"fedopt": fedopt, "np": np, "torch": torch, "nn": torch.nn, "Path": Path}
