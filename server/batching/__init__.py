"""Request batching, as in TensorFlow Serving. Without --enable_batching no request passes here."""
