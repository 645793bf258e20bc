"""Translates functions that XLA compiles as a whole (XLA clusters) to StableHLO modules."""
