"""Reads SavedModel files without TensorFlow."""
