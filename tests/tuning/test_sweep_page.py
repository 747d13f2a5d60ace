"""The report of a real sweep: it names the same winner as the terminal."""

from __future__ import annotations

from pathlib import Path

from pages import by_class, parse_page, text
from sweeps import SQUARE, sweep_words
from typed import fedopt


def test_page_and_terminal_have_the_same_sentences_about_the_winner(square: Path) -> None:
    rules = {"train_loss": "Selected by the paper's rule", "recall_at_5": "Selected by recall@5"}
    for select, start in rules.items():
        done = fedopt(*sweep_words("--out", square, "--select", select, grid=SQUARE, algorithm="fedadagrad"))
        assert done.code == 0, done.err
        (lead,) = by_class(parse_page((square / "report.html").read_text()), "lead")
        sentences = text(lead).replace("\xa0", " ")
        assert sentences.startswith(start)
        assert "A wider grid may be better." in sentences  # two values of each rate: all are at the edge
        assert sentences in " ".join(done.out.split())
