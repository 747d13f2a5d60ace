"""The directory of the user's modules, which is sent to the nodes of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from fedopt.engine.executors.ray.user_code import runtime_env


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is also that of the program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_directory_without_imported_modules_is_not_sent(project: Path) -> None:
    """Modules such as torch.ops have the name of a file that does not exist."""
    assert torch.ops.__file__ == "_ops.py"
    (project / "data.bin").write_bytes(b"0")
    assert runtime_env() == {}


def test_directory_of_an_imported_module_is_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "module_of_a_user.py").write_text("x = 1\n")
    __import__("module_of_a_user")
    assert runtime_env()["working_dir"] == str(project)
    monkeypatch.delitem(sys.modules, "module_of_a_user")
