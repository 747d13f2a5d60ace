"""The store: every imported dataset as memory-mapped arrays in one directory layout.

columns      flat and ragged columns
checks       compare the files with the manifest
stored       open a store and read its clients
writer       write a store
remote_store download a store from a URL
describe     statistics of a store: client sizes, labels per client
locations    default directories, and stores by name
split_alias  use another split of a store as its test split
"""

from fedopt.data.store.columns import Column, Ragged, ragged
from fedopt.data.store.stored import ClientIds, Store, StoredSplit, is_store, open_store
from fedopt.data.store.writer import write_store

__all__ = [
    "ClientIds",
    "Column",
    "Ragged",
    "Store",
    "StoredSplit",
    "is_store",
    "open_store",
    "ragged",
    "write_store",
]
