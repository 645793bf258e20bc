"""What the converted Keras model consists of: names, weights, options, tracing."""
