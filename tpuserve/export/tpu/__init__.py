"""Places parts of a graph on the TPU, and batching in front of them."""
