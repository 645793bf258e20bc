"""Translates TensorFlow computations to StableHLO, and runs them on the PJRT devices of jax."""
