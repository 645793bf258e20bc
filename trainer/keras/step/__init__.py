"""One step of a Keras model in each mode."""
