"""The report of a real sweep: it names the same winner as the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import by_class, parse_page, text
from sweeps import SQUARE, sweep_words
from typed import fedopt


@pytest.mark.parametrize("select", ["train_loss", "recall_at_5"])
def test_page_and_terminal_have_the_same_sentences_about_the_winner(square: Path, select: str) -> None:
    words = sweep_words("--out", square, "--select", select, grid=SQUARE, algorithm="fedadagrad")
    done = fedopt(*words)
    assert done.code == 0, done.err
    (lead,) = by_class(parse_page((square / "report.html").read_text()), "lead")
    sentences = text(lead).replace("\xa0", " ")
    assert sentences.startswith(
        "Selected by the paper's rule" if select == "train_loss" else "Selected by recall@5"
    )
    assert "A wider grid may be better." in sentences  # two values of each rate: every trial is at the edge
    assert sentences in " ".join(done.out.split())
