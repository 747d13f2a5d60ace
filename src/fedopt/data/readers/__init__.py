"""Readers of the public file formats, one module each. None of them needs TensorFlow."""
