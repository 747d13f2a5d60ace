"""The synthetic roles and users: exact totals, the same text everywhere, and clients that really differ."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from fedopt.data.store import Ragged
from fedopt.data.synthetic import shakespeare as shakespeare
from fedopt.data.synthetic import stackoverflow as stackoverflow
from fedopt.errors import UserError

Floats = npt.NDArray[np.float64]

# The alphabet of the authors' code, in their order.
ALPHABET = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"


def rows(column: Ragged) -> list[list[int]]:
    pairs = zip(column.offsets[:-1], column.offsets[1:], strict=True)
    return [column.values[start:stop].tolist() for start, stop in pairs]


def digest(columns: dict[str, Ragged]) -> str:
    parts = [a.tobytes() for name in sorted(columns) for a in columns[name]]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def from_a_fresh_process(module: str, split: str, client: int) -> str:
    program = (
        "import hashlib, importlib; m = importlib.import_module(" + repr(module) + "); "
        f"e = m.examples({split!r}, {client}); "
        "print(hashlib.sha256(b''.join(a.tobytes() for k in sorted(e) for a in e[k])).hexdigest())"
    )
    here = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4321"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


# Both


@pytest.mark.parametrize(
    ("module", "split", "clients", "total"),
    [
        (shakespeare, "train", 715, 16_068),
        (shakespeare, "test", 715, 2_356),
        (stackoverflow, "train", 342_477, 135_818_730),
        (stackoverflow, "test", 204_088, 16_586_035),
    ],
)
def test_sizes_sum_to_the_totals_of_the_papers_table(module, split, clients, total) -> None:  # type: ignore[no-untyped-def]
    counts = module.sizes(split)
    assert counts.dtype == np.int64 and counts.shape == (clients,)
    assert counts.sum() == total
    assert counts.min() >= 1
    assert module.CLIENTS[split] == clients and module.EXAMPLES[split] == total
    with pytest.raises(ValueError, match="read-only"):
        counts[0] = 0


@pytest.mark.parametrize("module", [shakespeare, stackoverflow])
def test_sizes_are_heavy_tailed(module) -> None:  # type: ignore[no-untyped-def]
    counts = np.sort(module.sizes("train"))[::-1]
    assert np.median(counts) < counts.mean() / 2
    assert counts[: len(counts) // 10].sum() > 0.4 * counts.sum()


@pytest.mark.parametrize("module", [shakespeare, stackoverflow])
@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_are_sorted_and_different(module, split) -> None:  # type: ignore[no-untyped-def]
    names = module.ids(split)
    listed = list(names)
    assert len(names) == len(set(listed)) == module.CLIENTS[split]
    assert listed == sorted(listed)
    assert names[0] == listed[0] and names[-1] == listed[-1] and names[7:9] == listed[7:9]
    with pytest.raises(IndexError):
        names[len(listed)]


@pytest.mark.parametrize(("module", "client"), [(shakespeare, 271), (stackoverflow, 200_000)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_client_is_the_same_in_every_process(module, client, split) -> None:  # type: ignore[no-untyped-def]
    here = digest(module.examples(split, client))
    assert here == digest(module.examples(split, np.int64(client)))
    assert here == from_a_fresh_process(module.__name__, split, client)
    assert here != digest(module.examples(split, client - 1))
    assert digest(module.examples("train", client)) != digest(module.examples("test", client))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shakespeare.sizes("tset"), "unknown split 'tset' .did you mean 'test'"),
        (lambda: shakespeare.ids("dev"), "allowed: train, test"),
        (lambda: shakespeare.examples("train", 715), "roles are numbered 0 to 714"),
        (lambda: stackoverflow.sizes("dev"), "allowed: train, test"),
        (lambda: stackoverflow.ids("dev"), "allowed: train, test"),
        (lambda: stackoverflow.examples("test", 204_088), "no user 204088 in test; .* 0 to 204087"),
        (lambda: stackoverflow.examples("test", -1), "no user -1"),
        (lambda: stackoverflow.examples("test", 0, limit=0), "limit must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_explained(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        call()


# Shakespeare


@cache
def speeches(split: str) -> dict[int, list[bytes]]:
    """The speeches of every second role."""
    return {
        role: [bytes(row) for row in rows(shakespeare.examples(split, role)["snippets"])]
        for role in range(0, 715, 2)
    }


def test_speeches_are_ascii_over_the_86_characters() -> None:
    assert len(set(ALPHABET)) == 86
    for split in ("train", "test"):
        for role, lines in speeches(split).items():
            assert len(lines) == shakespeare.sizes(split)[role]
            text = b"".join(lines).decode("ascii")
            assert set(text) <= set(ALPHABET)


def test_columns_are_ragged_bytes() -> None:
    columns = shakespeare.examples("train", 3)
    assert list(columns) == ["snippets"]
    values, offsets = columns["snippets"]
    assert values.dtype == np.uint8 and offsets.dtype == np.int64
    assert offsets[0] == 0 and offsets[-1] == len(values) and (np.diff(offsets) > 0).all()


def test_speeches_are_written_like_a_play() -> None:
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
    """Of the most frequent character after each context of the train speeches, on the test speeches."""
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


def test_the_next_character_can_be_learned_from_those_before() -> None:
    unigram, trigram, longer = (next_character_accuracy(context) for context in (0, 2, 4))
    assert 0.14 < unigram < 0.19  # the space, as in English
    assert 0.40 < trigram < 0.55
    assert trigram + 0.10 < longer < 0.75


def likes(lines: list[bytes]) -> Counter[bytes]:
    return Counter(b" ".join(lines).lower().replace(b"\n", b" ").split())


def test_roles_can_be_told_apart_by_their_words() -> None:
    """Naive Bayes over words: which of 30 roles says this test speech?"""
    chosen = sorted(speeches("train"), key=lambda role: -shakespeare.sizes("train")[role])[:30]
    counts = [likes(speeches("train")[role]) for role in chosen]
    vocabulary = {word: i for i, word in enumerate(sorted(set().union(*counts)))}
    table = np.full((30, len(vocabulary) + 1), 0.1)
    for row, words in zip(table, counts, strict=True):
        for word, count in words.items():
            row[vocabulary[word]] += count
    logs = np.log(table / table.sum(axis=1, keepdims=True))
    hits = total = 0
    for truth, role in enumerate(chosen):
        for line in speeches("test")[role]:
            columns = [vocabulary.get(word, len(vocabulary)) for word in likes([line]).elements()]
            hits += logs[:, columns].sum(axis=1).argmax() == truth
            total += 1
    assert hits / total > 0.5  # chance is 1 in 30


def test_a_roles_words_are_its_own_in_both_splits() -> None:
    roles = [role for role in speeches("test") if len(b"".join(speeches("test")[role])) > 1500][:40]
    words = sorted(set().union(*(likes(speeches("train")[role]) for role in roles)))

    def profiles(split: str) -> Floats:
        said = [likes(speeches(split)[role]) for role in roles]
        found = np.array([[counts[word] for word in words] for counts in said], dtype=float)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    alike = profiles("train") @ profiles("test").T
    own, others = np.diag(alike).mean(), alike[~np.eye(len(roles), dtype=bool)].mean()
    assert own > 0.85 and others < own - 0.2


def test_names_belong_to_a_play() -> None:
    def called(role: int) -> set[bytes]:
        cues = [line.split(b"]")[0] for line in speeches("train")[role] if line.startswith(b"[To ")]
        return {cue[4:] for cue in cues}

    first, last = (set().union(*map(called, some)) for some in (range(0, 38, 2), range(676, 714, 2)))
    assert first and last and not first & last
    assert all(name.isupper() for name in first | last)


# Stack Overflow

SAMPLE = range(0, 342_477, 1_501)  # 229 users


@cache
def user(split: str, client: int) -> dict[str, Ragged]:
    return stackoverflow.examples(split, client)


def test_columns_are_ragged_ids_within_their_ranges() -> None:
    smallest = int(stackoverflow.sizes("train").argmin())
    for client in (0, 999, 342_476, smallest):
        columns = user("train", client)
        assert sorted(columns) == ["tags", "title", "tokens"]
        n = min(stackoverflow.sizes("train")[client], 1000)
        for name, low, high, longest in (
            ("tokens", 1, 10_001, 48),
            ("title", 1, 10_001, 16),
            ("tags", 0, 499, 5),
        ):
            values, offsets = columns[name]
            assert values.dtype == np.uint16 and offsets.dtype == np.int64
            assert low <= values.min() and values.max() <= high
            lengths = np.diff(offsets)
            assert len(lengths) == n and offsets[0] == 0 and offsets[-1] == len(values)
            assert 1 <= lengths.min() and lengths.max() <= longest
        assert all(len(set(tags)) == len(tags) for tags in rows(columns["tags"]))


def test_a_limit_only_cuts() -> None:
    client = int(np.argmax(stackoverflow.sizes("train")))
    whole = user("train", client)
    assert len(whole["tokens"].offsets) - 1 == 1000
    for limit in (1, 37, 999):
        cut = stackoverflow.examples("train", client, limit)
        for name, column in cut.items():
            assert rows(column) == rows(whole[name])[:limit]
    longer = stackoverflow.examples("train", client, 1500)
    assert rows(longer["tokens"])[:1000] == rows(whole["tokens"])


def test_memory_is_that_of_the_sizes_and_of_the_sampled_users() -> None:
    stackoverflow.sizes.cache_clear()
    stackoverflow.examples("test", 0)  # the tables that everything shares
    stackoverflow.sizes.cache_clear()
    tracemalloc.start()
    try:
        names, counts = stackoverflow.ids("train"), stackoverflow.sizes("train")
        kept = tracemalloc.get_traced_memory()[0]
        for client in range(0, 342_477, 6_850):
            assert names[client].startswith("user") and counts[client] >= 1
            stackoverflow.examples("train", client)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.1 * 8 * 342_477
    assert after < kept + 100_000
    assert peak < 6 * 8 * 342_477


def test_sentences_and_tags_are_spread_like_the_real_ones() -> None:
    lengths = np.concatenate([np.diff(user("train", client)["tokens"].offsets) for client in SAMPLE])
    assert 12 < lengths.mean() < 20 and lengths.std() > 6
    tags = np.concatenate([np.diff(user("train", client)["tags"].offsets) for client in SAMPLE])
    assert 2.5 < tags.mean() < 3.5 and set(tags.tolist()) == {1, 2, 3, 4, 5}
    titles = [rows(user("train", client)["title"]) for client in SAMPLE]
    repeated = [a == b for title in titles for a, b in zip(title[1:], title[:-1], strict=True)]
    assert 0.7 < np.mean(repeated) < 0.8  # posts of four sentences on average share their title


def test_words_follow_zipfs_law() -> None:
    """Frequency times rank is nearly constant, and the ids are in the order of frequency."""
    words = np.concatenate([user("train", client)["tokens"].values for client in SAMPLE])
    share = np.bincount(words, minlength=10_002) / len(words)
    ordered = np.sort(share[1:10_001])[::-1]
    products = [ordered[rank - 1] * rank for rank in (10, 30, 100, 300, 1000, 3000)]
    assert max(products) < 2 * min(products)
    blocks = [share[a:b].mean() for a, b in ((1, 10), (10, 100), (100, 1000), (1000, 10_001))]
    assert blocks == sorted(blocks, reverse=True) and blocks[0] > 100 * blocks[-1]
    assert 0.03 < share[10_001] < 0.05  # out of the vocabulary


def test_most_words_are_absent_from_most_users() -> None:
    present = np.zeros((len(SAMPLE), 10_002), dtype=bool)
    for row, client in zip(present, SAMPLE, strict=True):
        row[user("train", client)["tokens"].values] = True
    present = present[:, 1:10_001]
    absent = 1.0 - present.mean(axis=1)
    assert absent.mean() > 0.88 and np.median(absent) > 0.90 and absent.min() > 0.65
    assert np.median(present.mean(axis=0)) < 0.07  # half of the words: used by less than 7 % of the users
    assert (present.mean(axis=0) > 0.5).mean() < 0.04


def test_users_keep_their_topics_and_differ_from_each_other() -> None:
    many = (stackoverflow.sizes("train")[:204_088] > 50) & (stackoverflow.sizes("test") > 20)
    chosen = np.flatnonzero(many)[::700][:80]

    def profiles(split: str) -> Floats:
        found = np.stack([np.bincount(user(split, int(c))["tags"].values, minlength=500) for c in chosen])
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    alike = profiles("train") @ profiles("test").T
    own, others = np.diag(alike).mean(), alike[~np.eye(len(chosen), dtype=bool)].mean()
    assert own > 0.6 and others < 0.15


def bags(split: str, client: int, limit: int) -> tuple[Floats, Floats]:
    """Words (n, 10000) of sentence and title, with sum 1 before unknown words are dropped, and tags."""
    columns = stackoverflow.examples(split, client, limit)
    n = len(columns["tokens"].offsets) - 1
    words, tags = np.zeros((n, 10_002), dtype=np.float32), np.zeros((n, 500), dtype=np.float32)
    for name in ("tokens", "title"):
        np.add.at(words, (np.repeat(np.arange(n), np.diff(columns[name].offsets)), columns[name].values), 1.0)
    tags[np.repeat(np.arange(n), np.diff(columns["tags"].offsets)), columns["tags"].values] = 1.0
    return (words / words.sum(axis=1, keepdims=True))[:, 1:10_001], tags


def recall_at_5(scores: Floats, tags: Floats) -> float:
    top = np.argpartition(-scores, 5, axis=1)[:, :5]
    return float(np.take_along_axis(tags, top, axis=1).sum() / tags.sum())


@cache
def test_posts() -> tuple[Floats, Floats]:
    found = [bags("test", client, 10) for client in range(0, 204_088, 2_041)]
    return np.concatenate([words for words, _ in found]), np.concatenate([tags for _, tags in found])


test_posts.__test__ = False  # type: ignore[attr-defined]


def test_tags_follow_from_words() -> None:
    """Naive Bayes from 229 users to others, against always naming the five most frequent tags."""
    joint, often = np.full((10_000, 500), 0.1, dtype=np.float32), np.ones(500, dtype=np.float32)
    for client in SAMPLE:
        words, tags = bags("train", client, 100)
        used = words.any(axis=0)
        joint[used] += (words[:, used] > 0).astype(np.float32).T @ tags
        often += tags.sum(axis=0)
    words, tags = test_posts()
    frequent = recall_at_5(np.broadcast_to(often, tags.shape), tags)
    learned = recall_at_5((words > 0) @ np.log(joint / joint.sum(axis=0)) + np.log(often), tags)
    assert frequent < 0.12
    assert learned > 0.5


def federated_recall(adaptive: bool, rounds: int) -> float:
    """Logistic regression with ten users a round, one batch of at most 100 each, at the paper's best rates:
    client 10^2 for both; server 10^0 for FedAvg, 10^1 with tau 10^-2 for FedAdagrad (Algorithm 2).
    """
    x = np.zeros((10_001, 500), dtype=np.float32)  # the bias is the last row
    v = np.full_like(x, 1e-4)
    users = np.random.default_rng(0).permutation(342_477)
    for t in range(rounds):
        delta, total = np.zeros_like(x), 0
        for client in users[10 * t : 10 * t + 10].tolist():
            words, tags = bags("train", client, 100)
            n = len(tags)
            used = np.append(words.any(axis=0), True)
            inputs = np.append(words, np.ones((n, 1), dtype=np.float32), axis=1)[:, used]
            error = 1.0 / (1.0 + np.exp(-inputs @ x[used])) - tags
            delta[used] -= n * 100.0 * (inputs.T @ error) / 500
            total += n
        delta /= total
        if adaptive:
            v += delta**2
            x += 10.0 * delta / (np.sqrt(v) + 0.01)
        else:
            x += delta
    words, tags = test_posts()
    return recall_at_5(words @ x[:-1] + x[-1], tags)


def test_an_adaptive_server_is_far_ahead_where_gradients_are_sparse() -> None:
    """The margin, fixed before it was measured: ten points of recall at 5."""
    assert federated_recall(adaptive=True, rounds=15) > federated_recall(adaptive=False, rounds=15) + 0.10


def test_the_next_word_depends_on_the_one_before() -> None:
    """Of the words in the vocabulary: the commonest word, against the commonest after the word before."""

    def pairs(clients: list[int]) -> npt.NDArray[np.int64]:
        """Word before (0 at the beginning) times 2^14 plus word."""
        found = []
        for client in clients:
            values, offsets = user("train", client)["tokens"]
            before = np.roll(values, 1).astype(np.int64)
            before[offsets[:-1]] = 0
            found.append((before * 2**14 + values)[values <= 10_000])
        return np.concatenate(found)

    sample = list(SAMPLE)
    seen, counts = np.unique(pairs(sample[:150]), return_counts=True)
    order = np.argsort(counts, kind="stable")
    best = np.zeros(10_002, dtype=np.int64)
    best[seen[order] // 2**14] = seen[order] % 2**14  # the last to be assigned is the most frequent
    commonest = np.bincount(pairs(sample[:150]) % 2**14).argmax()
    test = pairs(sample[150:])
    assert np.mean(test % 2**14 == commonest) < 0.06
    assert np.mean(best[test // 2**14] == test % 2**14) > 0.2
