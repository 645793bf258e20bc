"""Classification of the TensorFlow names that a program uses."""
