"""Builds the training, evaluation and prediction step of a Keras model in a TPUEstimator."""
