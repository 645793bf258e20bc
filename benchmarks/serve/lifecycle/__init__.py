"""Benchmarks of the start of a server, and of loading, replacing and unloading models."""
