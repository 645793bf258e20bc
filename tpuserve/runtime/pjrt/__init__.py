"""The "pjrt" runtime, which runs the computations of TPU metagraphs on jax's PJRT devices."""
