"""Client data: federations, the store of imported datasets, importing, partitions, synthetic datasets.

federation    clients and their examples
structure     nested arrays as flat tuples
client_data   the data of a client in every accepted form
store/        imported datasets as memory-mapped arrays
importing/    import public files or a user's table into a store
readers/      one module per file format
partition     assign examples to clients
federate      divide one dataset among clients
distribution  sizes and labels over clients
text          encode text as token ids
synthetic/    generated datasets that need no download
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedopt.data.federation import (
    Arrays,
    Federation,
    LabelReader,
    Split,
    from_function,
    union,
)
from fedopt.lazy import lazy_names

if TYPE_CHECKING:
    from fedopt.data.store.locations import store_directory
    from fedopt.data.store.stored import Store, is_store, local_directory, open_store
    from fedopt.data.synthetic import synthetic_sizes

__all__ = [
    "Arrays",
    "Federation",
    "LabelReader",
    "Split",
    "Store",
    "from_function",
    "is_store",
    "local_directory",
    "open_store",
    "store_directory",
    "synthetic_sizes",
    "union",
]

if not TYPE_CHECKING:
    __getattr__, _ = lazy_names(
        __name__,
        {
            "fedopt.data.store.locations": "store_directory",
            "fedopt.data.store.stored": "Store is_store local_directory open_store",
            "fedopt.data.synthetic": "synthetic_sizes",
        },
    )
