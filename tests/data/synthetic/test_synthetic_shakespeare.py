"""Synthetic Shakespeare: format, learnable text, and roles with their own style."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import numpy as np
import numpy.typing as npt

from fedopt.data.synthetic import shakespeare

Floats = npt.NDArray[np.float64]

# The alphabet of the authors' code, in their order.
ALPHABET = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"


def test_sizes_are_heavy_tailed() -> None:
    counts = np.sort(shakespeare.sizes("train"))[::-1]
    assert np.median(counts) < counts.mean() / 2
    assert counts[: len(counts) // 10].sum() > 0.4 * counts.sum()


@cache
def speeches(split: str) -> dict[int, list[bytes]]:
    """Return the speeches of every second role."""
    return {
        role: [row.tobytes() for row in shakespeare.examples(split, role)["snippets"].rows()]
        for role in range(0, 715, 2)
    }


def test_speeches_use_the_86_characters() -> None:
    assert len(set(ALPHABET)) == 86
    for split in ("train", "test"):
        for role, lines in speeches(split).items():
            assert len(lines) == shakespeare.sizes(split)[role]
            text = b"".join(lines).decode("ascii")
            assert set(text) <= set(ALPHABET)


def test_column_is_ragged_bytes() -> None:
    columns = shakespeare.examples("train", 3)
    assert list(columns) == ["snippets"]
    values, offsets = columns["snippets"]
    assert values.dtype == np.uint8 and offsets.dtype == np.int64
    assert offsets[0] == 0 and offsets[-1] == len(values) and (np.diff(offsets) > 0).all()


def test_speeches_have_the_format_of_a_play() -> None:
    lines = [line for role in speeches("train").values() for line in role]
    assert all(line[:1].isupper() or line[:1] == b"[" for line in lines)
    assert all(line[-1:] in b".!?" for line in lines)
    lengths = np.array([len(line) for line in lines])
    assert 80 < np.median(lengths) < 140 and 140 < lengths.mean() < 220 and lengths.max() > 1000
    text = b"\n".join(lines)
    assert b"[Aside]" in text and b"[To " in text and b" thou " in text and b" you " in text
    assert b"  " not in text and b" \n" not in text and b" ," not in text
    assert max(len(line) for line in text.split(b"\n")) < 100


def next_character_accuracy(context: int) -> float:
    """Test accuracy of predicting the most frequent character after each context in the train speeches."""
    seen: dict[bytes, Counter[int]] = defaultdict(Counter)
    pad = b"\0" * context
    for role in list(speeches("train").values())[::2]:
        for line in role:
            padded = pad + line
            for i, character in enumerate(line):
                seen[padded[i : i + context]][character] += 1
    best = {before: counts.most_common(1)[0][0] for before, counts in seen.items()}
    hits = total = 0
    for role in list(speeches("test").values())[::2]:
        for line in role:
            padded = pad + line
            hits += sum(best.get(padded[i : i + context]) == c for i, c in enumerate(line))
            total += len(line)
    return hits / total


def test_next_character_depends_on_the_previous_ones() -> None:
    unigram, trigram, longer = (next_character_accuracy(context) for context in (0, 2, 4))
    assert 0.14 < unigram < 0.19  # the space, as in English
    assert 0.40 < trigram < 0.55
    assert trigram + 0.10 < longer < 0.75


def count_words(lines: list[bytes]) -> Counter[bytes]:
    return Counter(b" ".join(lines).lower().replace(b"\n", b" ").split())


def test_roles_are_recognised_by_their_words() -> None:
    """Naive Bayes over words recognises the role of a test speech among 30 roles."""
    chosen = sorted(speeches("train"), key=lambda role: -shakespeare.sizes("train")[role])[:30]
    counts = [count_words(speeches("train")[role]) for role in chosen]
    vocabulary = {word: i for i, word in enumerate(sorted(set().union(*counts)))}
    table = np.full((30, len(vocabulary) + 1), 0.1)
    for row, words in zip(table, counts, strict=True):
        for word, count in words.items():
            row[vocabulary[word]] += count
    logs = np.log(table / table.sum(axis=1, keepdims=True))
    hits = total = 0
    for truth, role in enumerate(chosen):
        for line in speeches("test")[role]:
            columns = [vocabulary.get(word, len(vocabulary)) for word in count_words([line]).elements()]
            hits += logs[:, columns].sum(axis=1).argmax() == truth
            total += 1
    assert hits / total > 0.5  # chance is 1 in 30


def test_role_uses_the_same_words_in_both_splits() -> None:
    roles = [role for role in speeches("test") if len(b"".join(speeches("test")[role])) > 1500][:40]
    words = sorted(set().union(*(count_words(speeches("train")[role]) for role in roles)))

    def profiles(split: str) -> Floats:
        counted = [count_words(speeches(split)[role]) for role in roles]
        found = np.array([[counts[word] for word in words] for counts in counted], dtype=float)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    alike = profiles("train") @ profiles("test").T
    own, others = np.diag(alike).mean(), alike[~np.eye(len(roles), dtype=bool)].mean()
    assert own > 0.85 and others < own - 0.2


def test_plays_have_different_names() -> None:
    def called(role: int) -> set[bytes]:
        cues = [line.split(b"]")[0] for line in speeches("train")[role] if line.startswith(b"[To ")]
        return {cue[4:] for cue in cues}

    first, last = (set().union(*map(called, some)) for some in (range(0, 38, 2), range(676, 714, 2)))
    assert first and last and not first & last
    assert all(name.isupper() for name in first | last)
