"""Benchmarks of what hostile clients, costly requests and slow models do to other requests."""
