"""Translation of a TPU metagraph into StableHLO: a module for each cluster and batch size."""
