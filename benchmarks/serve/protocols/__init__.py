"""Benchmarks of the speed of requests over each protocol."""
