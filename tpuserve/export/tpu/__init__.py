"""Puts parts of a graph on the TPU, with batching in front of them."""
