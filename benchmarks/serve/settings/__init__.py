"""Benchmarks that compare settings of the server, and the server with Triton's batching."""
