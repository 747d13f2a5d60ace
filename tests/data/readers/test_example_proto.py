"""The protobuf wire format, against worked examples of its documentation and an independent encoder."""

from __future__ import annotations

import struct

import numpy as np
import publicfiles as files
import pytest

from fedopt.data.readers import example_proto


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (150, "9601"),
        (300, "ac02"),
        (-1, "ff" * 9 + "01"),
        (2**62, "80" * 8 + "40"),
    ],
)  # 150 and 300 are the worked examples of protobuf's documentation
def test_varints_match_the_protobuf_documentation(number: int, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert example_proto.varints(raw).tolist() == [number] and files.varint(number) == raw
    assert example_proto.varints(raw * 3).tolist() == [number] * 3


def test_number_beyond_64_bits_is_rejected() -> None:
    """The tenth byte of 2^64 + 3 has the bit 64, which would be lost."""
    with pytest.raises(ValueError, match="64 bits"):
        example_proto.varints(bytes.fromhex("83" + "80" * 8 + "02"))


def test_unpacked_numbers_and_unknown_fields_are_read() -> None:
    numbers = files.field(1, files.field(1, b"n") + files.field(2, files.field(3, b"\x08\x96\x01\x08\x05")))
    floats = files.field(
        1, files.field(1, b"f") + files.field(2, files.field(2, b"\x0d" + struct.pack("<f", 1.5)))
    )
    unknown = b"\x18\x07" + b"\x25" + bytes(4) + b"\x29" + bytes(8) + files.field(9, b"?")
    found = example_proto.decode(unknown + files.field(1, numbers + floats), {"n", "f"})
    assert found["n"].tolist() == [150, 5] and found["f"].tolist() == [1.5]


def test_truncated_example_raises_or_lacks_a_field() -> None:
    blob = files.example({"label": 7, "pixels": np.ones(3, np.float32)})
    for length in range(len(blob)):
        try:
            assert len(example_proto.decode(blob[:length], {"label", "pixels"})) < 2
        except ValueError:
            pass
