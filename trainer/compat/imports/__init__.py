"""Makes the imports of programs written for TPUEstimator work on today's TensorFlow."""
