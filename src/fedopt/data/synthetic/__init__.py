"""Synthetic datasets. They need no download and match the real data in clients, sizes and label skew.

Each dataset module has `sizes(split)`, `ids(split)` and `examples(split, client)`. Examples are columns with
the names of an imported dataset.
"""
