"""Translation of the XLA clusters of a lowered graph to StableHLO modules."""
