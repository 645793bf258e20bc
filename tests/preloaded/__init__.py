"""Python processes that have TensorFlow already when they start."""
