"""Translates the XLA clusters of a lowered graph into StableHLO."""
