"""Runs CPU metagraphs through XLA, on the CPU device of jax's PJRT client."""
