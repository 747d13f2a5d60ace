"""Readers of the public file formats; each is a module, and none needs TensorFlow."""
