"""Generates inputs for a signature from its graph.

The inputs are for trying a model out: the same seed gives the same inputs, the values are ones
that common models accept, and a model that parses tf.Examples gets tf.Examples with the features
that it parses.
"""

from tpuserve.samples.generated import generate_inputs, has_open_batch_size

__all__ = ["generate_inputs", "has_open_batch_size"]
