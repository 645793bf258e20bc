"""Passes that change the graph of a model on its way to the TPU."""
