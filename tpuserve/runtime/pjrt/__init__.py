"""The "pjrt" runtime: computations of TPU metagraphs run on devices of jax's PJRT client."""
