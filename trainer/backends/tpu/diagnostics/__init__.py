"""Translates TensorFlow's and XLA's errors in a TPU run into errors about the user's program."""
