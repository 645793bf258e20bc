"""Functions that build TPU computations in a tf.Graph, with or without batching of requests."""
