"""The names of tf.contrib, and what replaces those that are missing."""
