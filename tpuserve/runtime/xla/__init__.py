"""The "xla" runtime, which compiles CPU metagraphs with XLA and runs them on jax's CPU device."""
