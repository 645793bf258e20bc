"""Compiles the training step of a TPUEstimator program on a machine without a TPU."""
