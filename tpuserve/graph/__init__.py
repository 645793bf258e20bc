"""Functions that analyse, prune and split TensorFlow graphs."""
