"""Rows of the tag model that a client's texts use."""

from __future__ import annotations

import numpy as np

from fedopt.tasks.stackoverflow import touched_words


def test_touched_words_are_renumbered_without_gaps() -> None:
    words = np.array([[7, 2, 0], [10, 12, 2]], dtype=np.int32)  # a vocabulary of 10: 12 is beyond it
    rows, (numbered, tags) = touched_words((words, np.zeros((2, 1))), 10)
    assert rows.tolist() == [1, 6, 9]
    assert numbered.tolist() == [[2, 1, 0], [3, 4, 1]]
    assert tags.shape == (2, 1)


def test_texts_without_a_known_word_touch_no_row() -> None:
    rows, (numbered, _) = touched_words((np.array([[0, 0]]), np.zeros((1, 1))), 10)
    assert rows.tolist() == [] and numbered.tolist() == [[0, 0]]
