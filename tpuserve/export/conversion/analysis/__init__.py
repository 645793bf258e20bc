"""Analyses a signature to decide which of its nodes run on the TPU and which on the host."""
