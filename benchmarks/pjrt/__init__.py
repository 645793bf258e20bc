"""Benchmarks of the runtimes that use jax's PJRT client."""
