"""Benchmarks of the server, most of them against another server or against a variant of it."""
