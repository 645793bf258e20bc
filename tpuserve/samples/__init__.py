"""Generates inputs for a signature from its graph.

The inputs serve to try a model. Common models accept the values, and the same seed gives the same
values. A model that parses tf.Examples gets tf.Examples with the features that the model parses.
"""

from tpuserve.samples.generated import generate_inputs, has_open_batch_size

__all__ = ["generate_inputs", "has_open_batch_size"]
