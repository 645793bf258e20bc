"""The lines of model_fn that created ops are known as long as they are asked for."""

import gc

import pytest
import tensorflow as tf

from trainer.execution.source_locations import SourceLocations

pytestmark = pytest.mark.slow


def test_a_line_is_found_after_its_graph_has_gone_out_of_scope() -> None:
    locations = SourceLocations()

    def model_fn() -> None:
        tf.constant(1.0, name="one")

    with tf.Graph().as_default():
        locations.recording(model_fn)()
    gc.collect()
    # Another graph takes the memory that the first would have freed.
    with tf.Graph().as_default():
        for _ in range(100):
            tf.constant(2.0)
    assert locations.find_line("two") is None
    line = locations.find_line("one")
    assert line is not None
    assert line.startswith(__file__)
    assert line.endswith('tf.constant(1.0, name="one")')
