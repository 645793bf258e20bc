"""Checks of a TPU metagraph for what would fail or surprise on a real TPU."""
