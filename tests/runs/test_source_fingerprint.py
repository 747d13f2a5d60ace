"""Checksums of functions change with everything that the functions use."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from fedopt.algorithms import adam, fedopt, scaffold, sgd
from fedopt.runs.source_fingerprint import algorithm_fingerprint, source_checksum

SCALE = 2.0


def helper(x: float) -> float:
    return x + 1


def other_helper(x: float) -> float:
    return x + 2


def user(x: float) -> float:
    return helper(SCALE * x)


def closure(value: Any) -> Any:
    def inner(x: float) -> Any:
        return value, x

    return inner


def with_default(x: float, factor: float = 1.0) -> float:
    return factor * x


class Client:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: float) -> float:
        return self.rate * x


def test_equal_functions_have_equal_checksums() -> None:
    for make in (lambda: user, lambda: closure(3), lambda: partial(user, 1), lambda: Client(0.1)):
        assert source_checksum(make()) == source_checksum(make())


def test_values_that_a_function_uses_change_its_checksum(monkeypatch) -> None:
    checksums = [
        source_checksum(value)
        for value in (
            closure(3),
            closure(4),
            closure(np.zeros(2)),
            closure(np.ones(2)),
            closure(torch.ones(2)),
            closure(helper),
            closure(other_helper),
            partial(with_default, factor=2.0),
            partial(with_default, factor=3.0),
            Client(0.1),
            Client(0.2),
        )
    ]
    assert len(set(checksums)) == len(checksums)
    before = source_checksum(user)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert source_checksum(user) != before
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert source_checksum(user) == before
    monkeypatch.setitem(globals(), "helper", other_helper)
    assert source_checksum(user) != before


def test_comments_and_containers_with_records_do_not_change_the_checksum() -> None:
    def plain(x: float) -> float:
        return x + 1

    first = source_checksum(plain)

    def plain(x: float) -> float:  # the same with a comment
        # and another one
        return x + 1

    assert source_checksum(plain) == first
    calls: list[int] = []
    recording = closure(calls)
    before = source_checksum(recording)
    calls.append(1)
    assert source_checksum(recording) == before


def test_options_of_built_in_optimizers_count_and_their_source_does_not() -> None:
    first, again, other = (fedopt(sgd(), adam(beta1=b)) for b in (0.9, 0.9, 0.8))
    assert algorithm_fingerprint(first) == algorithm_fingerprint(again)
    different = algorithm_fingerprint(other)
    changed = [name for name, value in algorithm_fingerprint(first).items() if different[name] != value]
    assert "function server" in changed and "function client" not in changed
    assert algorithm_fingerprint(scaffold())["vectors"] != different["vectors"]
