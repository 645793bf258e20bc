"""Conversion: adds a TPU metagraph to a SavedModel that has none, without the model's program."""
