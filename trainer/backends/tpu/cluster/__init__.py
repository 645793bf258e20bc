"""A session over the TensorFlow servers of several processes, which emulate the hosts of a TPU."""
