"""Answers an old program's imports of TensorFlow."""
