"""The histogram of labels per client."""

from __future__ import annotations

from fedopt.data.store.describe import histogram


def test_many_numbers_are_combined_into_ranges() -> None:
    counts = {str(n): 1 for n in range(10, 55)} | {"25": 7}  # 45 numbers: 15 bars of 3, from 9
    lines = histogram(counts, width=9)
    assert len(lines) == 16 and lines[0].split("|")[0].strip() == "9-11"
    assert lines[5].split() == ["24-26", "|", "#########", "9"]  # 24, 25 and 26: 1 + 7 + 1
    assert sum(int(line.split()[-1]) for line in lines) == 51
