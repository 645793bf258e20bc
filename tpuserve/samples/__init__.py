"""Generates sample inputs for a signature, for example to compare two metagraphs of a model.

The values are random, but most models accept them. The same seed gives the same values. A model
that parses tf.Examples gets tf.Examples with the features that the model parses.
"""

from tpuserve.samples.input_generation import (
    OPEN_DIMENSION,
    generate_inputs,
    has_open_batch_size,
    input_shapes,
)

__all__ = ["OPEN_DIMENSION", "generate_inputs", "has_open_batch_size", "input_shapes"]
