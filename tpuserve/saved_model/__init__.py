"""Reads and describes the files of a SavedModel without importing TensorFlow."""
