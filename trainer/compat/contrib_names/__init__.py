"""The names of tf.contrib, and replacements of the names that are not supplied."""
