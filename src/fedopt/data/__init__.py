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

from fedopt.data.federation import (
    Arrays,
    Federation,
    LabelReader,
    Split,
    from_function,
    union,
)

__all__ = ["Arrays", "Federation", "LabelReader", "Split", "from_function", "union"]
