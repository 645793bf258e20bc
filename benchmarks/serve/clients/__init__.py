"""Benchmarks of the client, of batch prediction and of tools that measure servers."""
