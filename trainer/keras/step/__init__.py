"""The training, evaluation and prediction step of a converted Keras model."""
