"""Compiles the training step of a program, with its all-reduce, for TPUs that are not there."""
