"""Inputs for a signature, made from nothing but its graph.

They are for trying a model out: the same seed gives the same inputs, every value is one that a
usual model takes, and a model that parses tf.Examples gets tf.Examples with the features that it
looks for.
"""

from tpuserve.samples.generated import generate_inputs, has_open_batch_size

__all__ = ["generate_inputs", "has_open_batch_size"]
