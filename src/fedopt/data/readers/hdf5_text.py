"""Read the texts of an HDF5 dataset after their sizes are known.

A text of variable length is a reference to a part of the file, and many references can name the same part.
The declared size of the dataset therefore says nothing about the size of the texts.
"""

from __future__ import annotations

import zlib
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

# On disk, a text of variable length is its length, the address of a heap and an index in it.
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])


def text_bytes(data: h5py.Dataset, file_size: int) -> int:
    """Return the number of bytes of all texts, or an upper bound if their references cannot be read."""
    if h5py.check_string_dtype(data.dtype).length is not None:  # texts of fixed length
        return int(data.nbytes)
    filters = data.id.get_create_plist()
    kinds = [filters.get_filter(index)[0] for index in range(filters.get_nfilters())]
    if data.chunks is None:
        return _contiguous_bytes(data)
    if kinds in ([], [h5py.h5z.FILTER_DEFLATE]):
        return _chunked_bytes(data, compressed=bool(kinds))
    return int(data.size * file_size)  # every text could be the whole file


def _contiguous_bytes(data: h5py.Dataset) -> int:
    start = data.id.get_offset()
    if start is None:  # nothing is stored, or the few texts are in the header
        return 0
    return _sum_lengths(np.fromfile(data.file.filename, REFERENCE, data.size, offset=start))


def _chunked_bytes(data: h5py.Dataset, compressed: bool) -> int:
    size = int(np.prod(data.chunks)) * REFERENCE.itemsize
    total = 0
    for index in range(data.id.get_num_chunks()):
        skipped_filters, raw = data.id.read_direct_chunk(data.id.get_chunk_info(index).chunk_offset)
        if compressed and not skipped_filters:
            raw = zlib.decompressobj().decompress(raw, size)
        whole = len(raw) // REFERENCE.itemsize * REFERENCE.itemsize
        total += _sum_lengths(np.frombuffer(raw[:whole], REFERENCE))
    return total


def _sum_lengths(references: NDArray[Any]) -> int:
    return int(references["length"].sum(dtype=np.int64))
