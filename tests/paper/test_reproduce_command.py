"""`fedopt reproduce` as a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typed import message_lines

from fedopt.cli import main


def run_command(monkeypatch: pytest.MonkeyPatch, directory: Path, *words: str) -> int:
    """Run the command in this process, because importing everything in another one takes seconds."""
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "argv", ["fedopt", "reproduce", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "unknown artifact 'nothing'; allowed: performance, so_test"),
        (["tau", "--scale", "huge"], "unknown scale 'huge'; allowed: paper, small, smoke"),
        (["tau", "--scale", "smoke", "--tasks", "mnist"], "unknown task in --tasks 'mnist'"),
        (["tau", "--scale", "smoke", "--workers", "0"], "workers must be at least 1, got 0"),
        (["tau", "--scale", "smoke", "--variant", "as_rnu"], "unknown variant 'as_rnu'"),
        (["tau", "--scale", "smoke", "--seeds", "3:1"], "--seeds '3:1'"),
        (["tau", "--scale", "smoke", "--data", "nowhere"], "--data nowhere holds no imported data"),
        (["list", "--tasks", "so_lr"], "`reproduce list` shows all artifacts and scales; omit --tasks"),
    ],
)
def test_user_error_is_one_line_and_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert run_command(monkeypatch, tmp_path, *words) == 2
    out, err = capsys.readouterr()
    (line,) = message_lines(err)
    assert out == "" and line.startswith(f"error: {message}")
    assert list(tmp_path.iterdir()) == []


def test_json_lists_the_artifacts_and_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["datasets", "--scale", "smoke", "--data", "synthetic", "--out", "made", "--json"]
    assert run_command(monkeypatch, tmp_path, *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["artifacts"] == [
        {"name": "datasets", "directory": "made/datasets", "runs": 0, "done": 0, "diverged": 0}
    ]
    assert (tmp_path / document["page"]).is_file()
