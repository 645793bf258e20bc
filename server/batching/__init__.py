"""Request batching, as in TensorFlow Serving. Used only with the flag --enable_batching."""
