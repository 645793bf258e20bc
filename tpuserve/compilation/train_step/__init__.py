"""Compiles the training step of a program, with its all-reduce, on a machine without a TPU."""
