"""Finds hazards in a TPU metagraph: what causes errors, delays or different results on a TPU."""
