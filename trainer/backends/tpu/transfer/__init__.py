"""Transfers tensors between host and TPU cores with threads that drive infeed and outfeed."""
