"""One session over the TensorFlow servers of several processes that emulate the hosts of a TPU."""
