"""What a conversion knows of a Keras model: its Keras version, variables, names and options."""
