"""Adds a TPU metagraph to a SavedModel that has only a CPU metagraph, without the model's code."""
