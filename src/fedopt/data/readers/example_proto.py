"""Decode `tf.train.Example` without TensorFlow, from the protobuf wire format.

Example  { Features features = 1; }
Features { map<string, Feature> feature = 1; }     an entry of a map is a message { key = 1; value = 2; }
Feature  { BytesList = 1 | FloatList = 2 | Int64List = 3 }, each { repeated value = 1; }
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3

ProtoValue = list[bytes] | NDArray[Any]


def decode(blob: bytes, wanted: Collection[str]) -> dict[str, ProtoValue]:
    r"""Return the wanted features of an Example. Raise ValueError if the bytes are not an Example.

    >>> decode(b"\x0a", ["y"])
    Traceback (most recent call last):
    ValueError: a number is truncated
    """
    values: dict[str, ProtoValue] = {}
    for number, _, features in _messages(blob):
        if number != 1:
            continue
        for inner, _, entry in _messages(features):
            if inner == 1:
                key, feature = _entry(entry, wanted)
                if key in wanted:
                    values[key] = _feature(feature)
    return values


def feature_names(blob: bytes) -> set[str]:
    """Return the names of the features of an Example."""
    return {
        _entry(entry)[0]
        for number, _, features in _messages(blob)
        if number == 1
        for inner, _, entry in _messages(features)
        if inner == 1
    }


def varints(packed: bytes) -> NDArray[np.int64]:
    """Decode numbers of 1 to 10 bytes. Each byte has seven bits, lowest first; the top bit means "continued".

    >>> varints(bytes([1, 0xAC, 0x02]))
    array([  1, 300])
    """
    raw = np.frombuffer(packed, dtype=np.uint8)
    if not raw.size:
        return np.empty(0, dtype=np.int64)
    last = raw < 0x80
    if not last[-1]:
        raise ValueError("a number is truncated")
    starts = np.flatnonzero(np.concatenate(([True], last[:-1])))
    place = np.arange(raw.size) - np.repeat(starts, np.diff(np.append(starts, raw.size)))
    if place.max() > 9 or (raw[place == 9] & 0x7F).max(initial=0) > 1:
        raise ValueError("a number is longer than 64 bits")
    bits = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).astype(np.int64)


def _entry(data: bytes, wanted: Collection[str] | None = None) -> tuple[str, bytes]:
    """Return key and value. The value is not read if the key is not wanted."""
    key, value = b"", b""
    for number, wire, content in _messages(data):
        if wire == LENGTH and number == 1:
            key = content
            if wanted is not None and key.decode() not in wanted:
                break
        elif wire == LENGTH and number == 2:
            value = content
    return key.decode(), value


def _feature(data: bytes) -> ProtoValue:
    value: ProtoValue = []
    for number, wire, content in _messages(data):
        if wire != LENGTH:
            continue
        if number == BYTES_LIST:
            value = [row for at, kind, row in _messages(content) if at == 1 and kind == LENGTH]
        elif number == FLOAT_LIST:
            value = _numbers(content, FIXED32)
        elif number == INT64_LIST:
            value = _numbers(content, VARINT)
    return value


def _numbers(data: bytes, unpacked: int) -> NDArray[Any]:
    """Decode a repeated number, packed or unpacked."""
    runs = [
        content for number, wire, content in _messages(data) if number == 1 and wire in (LENGTH, unpacked)
    ]
    joined = runs[0] if len(runs) == 1 else b"".join(runs)
    if unpacked == VARINT:
        return varints(joined)
    if len(joined) % 4:
        raise ValueError("a list of floats is truncated")
    return np.frombuffer(joined, dtype="<f4")


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Iterate over the fields of a message: number, wire type, bytes of the value."""
    at, end = 0, len(data)
    while at < end:
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
        wire = tag & 7
        if wire == LENGTH:
            size, at = (data[at], at + 1) if at < end and data[at] < 0x80 else _varint(data, at)
            stop = at + size
        elif wire == VARINT:
            stop = _varint(data, at)[1]
        elif wire == FIXED32:
            stop = at + 4
        elif wire == FIXED64:
            stop = at + 8
        else:
            raise ValueError(f"unknown wire type {wire}")
        if stop > end:
            raise ValueError("a field is truncated")
        yield tag >> 3, wire, data[at:stop]
        at = stop


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift > 63:
                raise ValueError("a number is longer than 64 bits")
    except IndexError:
        raise ValueError("a number is truncated") from None
