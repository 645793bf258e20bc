"""Finds hazards in a TPU metagraph: causes of errors, delays or other results on a real TPU."""
