"""Benchmarks a model server: measures its requests per second and its latency percentiles."""
