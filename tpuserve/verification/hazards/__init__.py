"""Finds what would fail or surprise on a TPU."""
