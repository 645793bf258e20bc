"""Inputs for a signature, made from nothing but its graph.

They are for trying a model out: the same seed gives the same inputs, every value is one that a
usual model takes, and a model that parses tf.Examples gets tf.Examples with the features that it
looks for.
"""

from tpuserve.samples.generated import batch_size_is_open, of_signature

__all__ = ["batch_size_is_open", "of_signature"]
