"""Synthetic datasets with the shape of the real ones."""
