"""The analysis of a signature: its flat graph, shapes, host ops, and the part for the TPU."""
